"""Many runners of one project: their requests stay within what a key and a process carry."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from api.runs.deadlines import RUNNER_LEASE_S
from api.scheduling.runners import heartbeat_interval_s
from api.settings import Settings
from tests.api.fixtures.stage import Stage

COPIES = text("""
INSERT INTO runners (id, project_id, name, slots, hostname, draining, lease_until, registered_at)
SELECT 'rnr_' || n, project_id, 'copy-' || n, 1, 'box', false, lease_until, registered_at
FROM runners, generate_series(1, :num) n WHERE name = 'box'
""")


def test_runners_of_a_crowd_are_told_to_come_less_often(stage: Stage) -> None:
    runner_id = stage.register()
    assert stage.beat(runner_id).heartbeat_interval_s == 2.0
    with stage.database.transaction() as session:
        session.execute(COPIES, {"num": 99})
    assert stage.beat(runner_id).heartbeat_interval_s == 4.0
    stage.later(2 * RUNNER_LEASE_S)
    assert stage.beat(runner_id).heartbeat_interval_s == 2.0, "the others are gone"


@pytest.mark.parametrize("num", [1, 50, 100, 375, 1_000])
def test_a_thousand_runners_of_one_key_stay_below_its_rate(num: int) -> None:
    """Otherwise heartbeats are refused, and runners that are well count as lost."""
    per_minute = Settings.model_fields["requests_per_minute"].default
    interval_s = heartbeat_interval_s(num)
    assert 60 * num / interval_s < per_minute
    assert 4 * interval_s <= RUNNER_LEASE_S


def test_a_heartbeat_says_whether_an_attempt_waits_for_a_runner(stage: Stage) -> None:
    runner_id = stage.register()
    run_id = stage.submit()
    assert stage.beat(runner_id).has_work is False
    stage.advance(run_id)
    assert stage.beat(runner_id).has_work is True
    assert stage.claim(runner_id) is not None
    assert stage.beat(runner_id).has_work is False
