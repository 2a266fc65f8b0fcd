"""API and blob store are away together: a trainer that nobody hears is not ended for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.runs.deadlines import CLUSTER_STOPPING_S, DEADLINES_S, KILL_GRACE_S, RUNNER_LEASE_S
from api.runs.status import RunStatus
from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.launch import LaunchPlan
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from worker.clusters import blob_channel
from worker.runs import driver, sweeps

S = RunStatus
LOOKS_EVERY_S = 35.0
"""Seldom, and not so seldom that nobody seems to look."""


def running(
    cluster_sim: ClusterSimulation, *, api_reachable: bool = True
) -> tuple[str, LaunchPlan]:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"api_reachable": api_reachable}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(20)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    return run_id, plan


def look_for(cluster_sim: ClusterSimulation, seconds: float) -> None:
    """Rounds of runs; no event comes, and no note."""
    for _ in range(int(seconds / LOOKS_EVERY_S) + 1):
        cluster_sim.clouds.pass_time(LOOKS_EVERY_S)
        for run_id in sweeps.runs(cluster_sim.context, now=cluster_sim.now):
            driver.reconcile(cluster_sim.context, run_id, must_be_due=True, clock=cluster_sim.clock)


@pytest.mark.parametrize("status", [S.RUNNING, S.PAUSING])
def test_no_deadline_passes_while_nobody_hears(
    cluster_sim: ClusterSimulation, status: RunStatus
) -> None:
    run_id, plan = running(cluster_sim)
    if status is S.PAUSING:
        cluster_sim.pause(run_id)
        limit = CLUSTER_STOPPING_S
    else:
        limit = DEADLINES_S[S.RUNNING] or 0.0
    heard_at = cluster_sim.attempts(run_id)[0].last_held_at
    cluster_sim.api.goes()
    look_for(cluster_sim, limit + 2 * RUNNER_LEASE_S)
    [attempt] = cluster_sim.attempts(run_id)
    assert (cluster_sim.status(run_id), attempt.kill_requested_at) == (status, None)
    assert attempt.last_held_at == heard_at
    cluster_sim.api.comes()
    assert cluster_sim.beat(plan) == ("stop" if status is S.PAUSING else None)


def test_a_trainer_that_hung_meanwhile_is_found_once_the_api_is_there(
    cluster_sim: ClusterSimulation,
) -> None:
    _, plan = running(cluster_sim)
    cluster_sim.api.goes()
    look_for(cluster_sim, (DEADLINES_S[S.RUNNING] or 0.0) + RUNNER_LEASE_S)
    cluster_sim.api.comes()
    look_for(cluster_sim, 2 * RUNNER_LEASE_S)
    assert cluster_sim.beat(plan) == "kill"


def test_what_was_told_to_end_gets_no_more_time(cluster_sim: ClusterSimulation) -> None:
    run_id, _ = running(cluster_sim)
    look_for(cluster_sim, (DEADLINES_S[S.RUNNING] or 0.0) - 2 * LOOKS_EVERY_S)
    assert cluster_sim.attempts(run_id)[0].kill_requested_at is None
    look_for(cluster_sim, 0.0)
    cluster_sim.clouds.pass_time(LOOKS_EVERY_S)
    sweeps.runs(cluster_sim.context, now=cluster_sim.now)
    driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
    assert cluster_sim.attempts(run_id)[0].kill_requested_at is not None
    cluster_sim.api.goes()
    look_for(cluster_sim, KILL_GRACE_S)
    assert cluster_sim.attempts(run_id)[0].end_code == "stalled"


def test_nodes_that_never_speak_to_the_api_are_judged_without_it(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim, api_reachable=False)
    cluster_sim.api.goes()
    look_for(cluster_sim, (DEADLINES_S[S.RUNNING] or 0.0) + 2 * RUNNER_LEASE_S)
    assert cluster_sim.attempts(run_id)[0].end_code == "stalled"


class Away(DiskStore):
    """A store that answers nobody."""

    def get(self, key: str) -> bytes:
        raise StoreError(f"{key}: nobody answers")


def test_no_deadline_of_a_run_that_speaks_by_notes_passes_while_they_cannot_be_read(
    cluster_sim: ClusterSimulation, tmp_path: Path
) -> None:
    run_id, _ = running(cluster_sim, api_reachable=False)
    there = cluster_sim.context
    cluster_sim.context = replace(cluster_sim.context, store=Away(tmp_path))
    for _ in range(int((DEADLINES_S[S.RUNNING] or 0.0) / LOOKS_EVERY_S) + 4):
        blob_channel.sweep(cluster_sim.context, now=cluster_sim.now)
        look_for(cluster_sim, 0.0)
    [attempt] = cluster_sim.attempts(run_id)
    assert (cluster_sim.status(run_id), attempt.kill_requested_at) == (S.RUNNING, None)
    cluster_sim.context = there
    look_for(cluster_sim, 2 * RUNNER_LEASE_S)
    assert cluster_sim.attempts(run_id)[0].kill_requested_at is not None, "it hung meanwhile"
