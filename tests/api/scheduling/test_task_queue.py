"""The bell rings on a real Valkey, and its failure is harmless."""

import json
import logging

import pytest
from redis import Redis

from api.queue import RECONCILE_TASK, BrokerUnreachable, CeleryTaskQueue
from hillclimb.stack.system.ports import find_free


def test_a_ring_is_one_task_with_the_id_and_nothing_else(redis_url: str) -> None:
    task_queue = CeleryTaskQueue(redis_url)
    task_queue.check()
    with Redis.from_url(redis_url) as redis:
        redis.flushdb()
        task_queue.enqueue(["run_a", "run_b"])
        messages = [json.loads(raw) for raw in redis.lrange("celery", 0, -1)]
    task_queue.close()
    assert {message["headers"]["task"] for message in messages} == {RECONCILE_TASK}
    assert {message["headers"]["argsrepr"] for message in messages} == {"['run_a']", "['run_b']"}
    assert all(message["headers"]["expires"] for message in messages)


def test_without_a_broker_a_ring_is_lost_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    task_queue = CeleryTaskQueue(f"redis://127.0.0.1:{find_free()}/0")
    with caplog.at_level(logging.WARNING, logger="api.queue"):
        task_queue.enqueue(["run_a"])
    assert "the sweep will find them" in caplog.text
    with pytest.raises(BrokerUnreachable):
        task_queue.check()
    task_queue.close()
