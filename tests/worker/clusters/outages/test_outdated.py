"""An update that refuses the spec of a run whose cluster is being launched."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from api.runs.errors import SpecOutdated
from api.runs.status import RunStatus
from api.tables import LaunchTry, Run
from tests.worker.clusters.cluster_simulation import ClusterSimulation
from worker.skypilot.port import OfferOutcome, TriedOffer


def outdated_while_launching(cluster_sim: ClusterSimulation) -> str:
    run_id = cluster_sim.submit()
    for _ in range(30):
        cluster_sim.run_for(1)
        if [each.state for each in cluster_sim.clusters(run_id)] == ["provisioning"]:
            break
    with cluster_sim.context.database.transaction() as session:
        run = session.get_one(Run, run_id)
        run.spec = run.spec | {"rollout": run.spec["rollout"] | {"gone": 1}}
    return run_id


def outcomes(cluster_sim: ClusterSimulation) -> list[str]:
    with cluster_sim.context.database.transaction() as session:
        return [each.outcome for each in session.scalars(select(LaunchTry))]


def test_its_node_is_told_why_it_gets_no_plan(cluster_sim: ClusterSimulation) -> None:
    run_id = outdated_while_launching(cluster_sim)
    cluster_sim.run_for(30)
    assert [each.state for each in cluster_sim.clusters(run_id)] == ["running"]
    assert outcomes(cluster_sim) == ["up"]
    with pytest.raises(SpecOutdated, match="rollout/gone"):
        cluster_sim.enter(run_id)


def test_what_its_launch_has_tried_is_written_and_the_run_ends_with_a_sentence(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.clouds.fails_launches = True
    cluster_sim.clouds.tried = (TriedOffer(infra="lambda", outcome=OfferOutcome.REFUSED),)
    run_id = outdated_while_launching(cluster_sim)
    cluster_sim.run_for(120)
    assert {each.state for each in cluster_sim.clusters(run_id)} == {"terminated"}
    assert outcomes(cluster_sim) == ["refused"]
    assert cluster_sim.status(run_id) is RunStatus.FAILED
