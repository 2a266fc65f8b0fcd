"""What a run is told when it is submitted."""

from __future__ import annotations

from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


def warnings(stage: Stage, run_id: str) -> list[object]:
    return [event.data for event in stage.events(run_id) if event.type == "run.warning"]


def test_who_evaluates_a_checkpoint_of_a_run_at_work_hears_that_it_may_be_deleted(
    stage: Stage,
) -> None:
    writer, runner_id, plan = stage.running(make.saved(2, 1))
    source = {"resumed_from": {"run_id": writer, "step": 1, "attempt": 1}}
    (warning,) = warnings(stage, stage.submit(kind="eval", lineage=source))
    message = (
        f"Run {writer} has not ended and keeps only its newest 2 checkpoints: if it deletes step 1"
        " before this run has read it, this run fails."
    )
    assert warning == {"code": "lineage", "message": message}
    stage.push(plan, make.ended(3))
    stage.end(runner_id, plan, last_seq=3)
    assert stage.status(writer) == "succeeded"
    assert warnings(stage, stage.submit(kind="eval", lineage=source)) == []
