"""The control plane was away: what it finds when it is back is not taken for dead or late."""

from __future__ import annotations

import pytest

from api.runs.absence import AWAY_S
from api.runs.advance import KILL_GRACE_S
from api.runs.runners import LEASE_S
from api.runs.status import DEADLINES_S, LOOK_AGAIN_S, RunStatus
from tests.worker.scene import Scene
from worker import driver, rounds

S = RunStatus
SILENCE_S = 3 * LEASE_S
OUTAGE_S = 35 * 60.0


def one_round(scene: Scene) -> None:
    for run_id in rounds.runs(scene.parts, now=scene.now):
        driver.reconcile(scene.parts, run_id, must_be_due=True, clock=scene.clock)


def rounds_for(scene: Scene, seconds: float, *held: str) -> None:
    end = scene.now.timestamp() + seconds
    while scene.now.timestamp() < end:
        scene.later(LOOK_AGAIN_S)
        if held:
            scene.heartbeat(*held)
        one_round(scene)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("status", [S.STARTING, S.RUNNING])
def test_a_trainer_is_neither_late_nor_lost_after_an_outage_of_the_database(
    scene: Scene, status: RunStatus
) -> None:
    run_id = scene.running() if status is S.RUNNING else claimed(scene)
    one_round(scene)
    attempt_id = scene.attempts(run_id)[0].id
    scene.later(OUTAGE_S)
    one_round(scene)
    scene.later(LOOK_AGAIN_S)
    one_round(scene)
    assert scene.heartbeat(attempt_id) == ()
    assert (scene.status(run_id), scene.run(run_id).attempt) == (status, 1)


@pytest.mark.usefixtures("api")
def test_what_is_dead_after_an_outage_is_found_so_once_its_time_is_over_again(
    scene: Scene,
) -> None:
    run_id = scene.running()
    one_round(scene)
    scene.later(OUTAGE_S)
    one_round(scene)
    rounds_for(scene, LEASE_S - LOOK_AGAIN_S)
    assert scene.status(run_id) is S.RUNNING
    rounds_for(scene, 2 * LOOK_AGAIN_S)
    assert scene.attempts(run_id)[0].end_code == "runner_lost"


def test_while_the_api_alone_is_away_no_runner_is_taken_for_lost(scene: Scene) -> None:
    """The worker goes on looking, and hears nobody."""
    run_id = scene.running()
    rounds_for(scene, SILENCE_S)
    assert (scene.status(run_id), scene.run(run_id).attempt) == (S.RUNNING, 1)
    attempt_id = scene.attempts(run_id)[0].id
    assert scene.heartbeat(attempt_id) == ()


def test_a_deadline_does_not_pass_while_nobody_could_be_told(scene: Scene) -> None:
    """A runner that was asked to pause cannot say that it does, nor hear that it is to kill."""
    run_id = scene.running()
    scene.pause(run_id)
    one_round(scene)
    assert scene.status(run_id) is S.PAUSING
    rounds_for(scene, 2 * (DEADLINES_S[S.PAUSING] or 0))
    assert scene.status(run_id) is S.PAUSING
    assert scene.attempts(run_id)[0].kill_requested_at is None


@pytest.mark.usefixtures("api")
def test_while_the_api_is_there_a_silent_runner_is_lost(scene: Scene) -> None:
    run_id = scene.running()
    rounds_for(scene, SILENCE_S)
    assert scene.attempts(run_id)[0].end_code == "runner_lost"


def test_what_the_api_left_behind_is_held_on_in_few_writes(scene: Scene) -> None:
    run_id = scene.running()
    held = set()
    for _ in range(30):
        scene.later(2.0)
        one_round(scene)
        held.add(scene.attempts(run_id)[0].last_held_at)
    assert len(held) == 2


@pytest.mark.usefixtures("api")
def test_a_trainer_that_says_nothing_is_ended_after_an_outage_too(scene: Scene) -> None:
    run_id = claimed(scene)
    one_round(scene)
    attempt_id = scene.attempts(run_id)[0].id
    scene.later(OUTAGE_S)
    rounds_for(scene, (DEADLINES_S[S.STARTING] or 0) - LOOK_AGAIN_S, attempt_id)
    assert scene.attempts(run_id)[0].kill_requested_at is None
    rounds_for(scene, 2 * LOOK_AGAIN_S, attempt_id)
    assert scene.attempts(run_id)[0].kill_requested_at is not None
    scene.later(AWAY_S + KILL_GRACE_S)
    scene.heartbeat(attempt_id)
    one_round(scene)
    assert scene.attempts(run_id)[0].end_code == "start_timeout"


def test_a_pause_in_the_clock_that_is_not_long_forgives_nothing(scene: Scene) -> None:
    run_id = claimed(scene)
    attempt_id = scene.attempts(run_id)[0].id
    one_round(scene)
    before = scene.run(run_id).deadline_at
    scene.later(AWAY_S - LOOK_AGAIN_S)
    scene.heartbeat(attempt_id)
    one_round(scene)
    assert scene.run(run_id).deadline_at == before


def claimed(scene: Scene) -> str:
    scene.register()
    run_id = scene.submit()
    scene.reconcile(run_id)
    assert scene.claim() is not None
    return run_id
