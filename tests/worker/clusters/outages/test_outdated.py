"""An update that refuses the spec of a run whose cluster is being launched."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from api.runs.errors import SpecOutdated
from api.runs.status import RunStatus
from api.tables import Offer, Run
from tests.worker.clusters.scene import ClusterScene
from worker.clusters.base import OfferTried, Outcome


def outdated_while_launching(far: ClusterScene) -> str:
    run_id = far.submit()
    for _ in range(30):
        far.run_for(1)
        if [each.state for each in far.clusters(run_id)] == ["launching"]:
            break
    with far.parts.database.transaction() as session:
        run = session.get_one(Run, run_id)
        run.spec = run.spec | {"rollout": run.spec["rollout"] | {"gone": 1}}
    return run_id


def outcomes(far: ClusterScene) -> list[str]:
    with far.parts.database.transaction() as session:
        return [each.outcome for each in session.scalars(select(Offer))]


def test_its_node_is_told_why_it_gets_no_plan(far: ClusterScene) -> None:
    run_id = outdated_while_launching(far)
    far.run_for(30)
    assert [each.state for each in far.clusters(run_id)] == ["up"]
    assert outcomes(far) == ["up"]
    with pytest.raises(SpecOutdated, match="rollout/gone"):
        far.enter(run_id)


def test_what_its_launch_has_tried_is_written_and_the_run_ends_with_a_sentence(
    far: ClusterScene,
) -> None:
    far.clouds.fails_launches = True
    far.clouds.tried = (OfferTried(infra="lambda", outcome=Outcome.REFUSED),)
    run_id = outdated_while_launching(far)
    far.run_for(120)
    assert {each.state for each in far.clusters(run_id)} == {"gone"}
    assert outcomes(far) == ["refused"]
    assert far.status(run_id) is RunStatus.FAILED
