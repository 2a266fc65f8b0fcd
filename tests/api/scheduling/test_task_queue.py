"""The bell rings on a real Valkey, and its failure is harmless."""

import json
import logging

import pytest
from redis import Redis

from api.bell import RECONCILE_TASK, BrokerAway, CeleryBell
from hillclimb.stack.ports import find_free


def test_a_ring_is_one_task_with_the_id_and_nothing_else(redis_url: str) -> None:
    bell = CeleryBell(redis_url)
    bell.check()
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()
        bell.ring(["run_a", "run_b"])
        messages = [json.loads(raw) for raw in redis.lrange("celery", 0, -1)]
    bell.close()
    assert {message["headers"]["task"] for message in messages} == {RECONCILE_TASK}
    assert {message["headers"]["argsrepr"] for message in messages} == {"['run_a']", "['run_b']"}
    assert all(message["headers"]["expires"] for message in messages)


def test_without_a_broker_a_ring_is_lost_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bell = CeleryBell(f"redis://127.0.0.1:{find_free()}/0")
    with caplog.at_level(logging.WARNING, logger="api.bell"):
        bell.ring(["run_a"])
    assert "the sweep will come" in caplog.text
    with pytest.raises(BrokerAway):
        bell.check()
    bell.close()
