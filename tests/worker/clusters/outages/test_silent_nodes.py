"""API and blob store are away together: a trainer that nobody hears is not ended for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.runs.advance import KILL_GRACE_S
from api.runs.runners import LEASE_S
from api.runs.status import CLUSTER_STOPPING_S, DEADLINES_S, RunStatus
from tests import factories as make
from tests.worker.clusters.scene import SKY, ClusterScene
from trainer.contract.launch import LaunchPlan
from trainer.stores.base import StoreError
from trainer.stores.disk import DiskStore
from worker import driver, rounds
from worker.clusters import mailbox

S = RunStatus
LOOKS_EVERY_S = 35.0
"""Seldom, and not so seldom that nobody seems to look."""


def running(far: ClusterScene, *, api_reachable: bool = True) -> tuple[str, LaunchPlan]:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"api_reachable": api_reachable}}
    run_id = far.submit(backend=sky)
    far.run_for(20)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    return run_id, plan


def look_for(far: ClusterScene, seconds: float) -> None:
    """Rounds of runs; no event comes, and no note."""
    for _ in range(int(seconds / LOOKS_EVERY_S) + 1):
        far.clouds.pass_time(LOOKS_EVERY_S)
        for run_id in rounds.runs(far.parts, now=far.now):
            driver.reconcile(far.parts, run_id, must_be_due=True, clock=far.clock)


@pytest.mark.parametrize("status", [S.RUNNING, S.PAUSING])
def test_no_deadline_passes_while_nobody_hears(far: ClusterScene, status: RunStatus) -> None:
    run_id, plan = running(far)
    if status is S.PAUSING:
        far.pause(run_id)
        limit = CLUSTER_STOPPING_S
    else:
        limit = DEADLINES_S[S.RUNNING] or 0.0
    heard_at = far.attempts(run_id)[0].last_held_at
    far.api.goes()
    look_for(far, limit + 2 * LEASE_S)
    [attempt] = far.attempts(run_id)
    assert (far.status(run_id), attempt.kill_requested_at) == (status, None)
    assert attempt.last_held_at == heard_at
    far.api.comes()
    assert far.beat(plan) == ("stop" if status is S.PAUSING else None)


def test_a_trainer_that_hung_meanwhile_is_found_once_the_api_is_there(far: ClusterScene) -> None:
    _, plan = running(far)
    far.api.goes()
    look_for(far, (DEADLINES_S[S.RUNNING] or 0.0) + LEASE_S)
    far.api.comes()
    look_for(far, 2 * LEASE_S)
    assert far.beat(plan) == "kill"


def test_what_was_told_to_end_gets_no_more_time(far: ClusterScene) -> None:
    run_id, _ = running(far)
    look_for(far, (DEADLINES_S[S.RUNNING] or 0.0) - 2 * LOOKS_EVERY_S)
    assert far.attempts(run_id)[0].kill_requested_at is None
    look_for(far, 0.0)
    far.clouds.pass_time(LOOKS_EVERY_S)
    rounds.runs(far.parts, now=far.now)
    driver.reconcile(far.parts, run_id, clock=far.clock)
    assert far.attempts(run_id)[0].kill_requested_at is not None
    far.api.goes()
    look_for(far, KILL_GRACE_S)
    assert far.attempts(run_id)[0].end_code == "stalled"


def test_nodes_that_never_speak_to_the_api_are_judged_without_it(far: ClusterScene) -> None:
    run_id, _ = running(far, api_reachable=False)
    far.api.goes()
    look_for(far, (DEADLINES_S[S.RUNNING] or 0.0) + 2 * LEASE_S)
    assert far.attempts(run_id)[0].end_code == "stalled"


class Away(DiskStore):
    """A store that answers nobody."""

    def get(self, key: str) -> bytes:
        raise StoreError(f"{key}: nobody answers")


def test_no_deadline_of_a_run_that_speaks_by_notes_passes_while_they_cannot_be_read(
    far: ClusterScene, tmp_path: Path
) -> None:
    run_id, _ = running(far, api_reachable=False)
    there = far.parts
    far.parts = replace(far.parts, store=Away(tmp_path))
    for _ in range(int((DEADLINES_S[S.RUNNING] or 0.0) / LOOKS_EVERY_S) + 4):
        mailbox.sweep(far.parts, now=far.now)
        look_for(far, 0.0)
    [attempt] = far.attempts(run_id)
    assert (far.status(run_id), attempt.kill_requested_at) == (S.RUNNING, None)
    far.parts = there
    look_for(far, 2 * LEASE_S)
    assert far.attempts(run_id)[0].kill_requested_at is not None, "it hung meanwhile"
