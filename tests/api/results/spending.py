"""Steps and evaluations that say what they took."""

from __future__ import annotations

from hillclimb.protocol.events import ComputeSpent, EvalCompleted, StepAbandoned, StepCompleted
from tests.api.fixtures.story import Story


def a_step(
    story: Story, run_id: str, step: int, *, rollouts: int = 10, flops: float | None = 3e6
) -> StepCompleted:
    """Of 10 rollouts 4 are learned from, 3 replaced and 1 has no grade: 2 have no signal."""
    compute = ComputeSpent(
        num_rollouts=rollouts,
        num_learned=4,
        num_resampled=3,
        num_ungraded=1,
        num_lost_tries=2,
        num_sampled_tokens=100 * rollouts,
        num_prefill_tokens=50 * rollouts,
        num_cached_tokens=7,
        num_trained_tokens=600,
        rollout_flops=1e6,
        train_flops=flops,
    )
    return story.step(run_id, step, {"booking": 0.5}).model_copy(update={"compute": compute})


def an_evaluation(story: Story, run_id: str, step: int, rate: float) -> EvalCompleted:
    compute = ComputeSpent(
        num_rollouts=60,
        num_sampled_tokens=6000,
        num_prefill_tokens=1,
        rollout_flops=5e6,
        train_flops=0.0,
    )
    event = story.evaluation(run_id, step, {"booking": rate})
    return event.model_copy(update={"compute": compute})


def an_interruption(story: Story, run_id: str, step: int, *, during: str) -> StepAbandoned:
    compute = ComputeSpent(num_sampled_tokens=33, rollout_flops=1e5, train_flops=0.0)
    return StepAbandoned.model_validate(
        {**story.place(run_id, step), "during": during, "compute": compute}
    )
