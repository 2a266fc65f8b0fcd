"""What a plan says of checkpoints: digests that nobody can change who can write to the store."""

from __future__ import annotations

from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


def test_a_plan_has_the_digests_of_what_its_attempt_may_open(stage: Stage) -> None:
    """From the database: files and manifest lie where runners of every project can write."""
    run_id, runner_id, plan = stage.running(make.saved(2, 1), make.saved(3, 2))
    assert plan.manifests == {}
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED, last_seq=3)
    again = stage.launch(run_id, runner_id)
    folder = f"runs/{run_id}/checkpoints"
    own = {f"{folder}/global_step_{step}/attempt-1": "a" * 64 for step in (1, 2)}
    assert again.manifests == own
    assert again.resume_from in own
    stage.push(again, make.started(1))
    stage.end(runner_id, again, ReasonCode.SPEC_REJECTED)

    source = {"run_id": run_id, "step": 1, "attempt": 1}
    eval_id = stage.submit(kind="eval", lineage={"resumed_from": source})
    plan = stage.launch(eval_id, runner_id)
    assert plan.manifests == {f"{folder}/global_step_1/attempt-1": "a" * 64}
    stage.end(runner_id, plan, ReasonCode.SPEC_REJECTED)
    started = stage.submit(model={"source": f"run:{run_id}@2/attempt-1"})
    assert stage.launch(started, runner_id).manifests == {
        f"{folder}/global_step_2/attempt-1": "a" * 64
    }
