"""Groups of rollouts as a step reports them, without rolling anything out."""

from __future__ import annotations

from collections.abc import Sequence

from tests.factories import outcome
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus


def a_group(env_key: str, task_key: str, scores: Sequence[float | None]) -> list[OutcomeRow]:
    """The rollouts of one task; None is a rollout without a grade."""
    return [
        outcome(
            f"{task_key}/{index}",
            score,
            env_key=env_key,
            task_key=task_key,
            sample_index=index,
            status=OutcomeStatus.INFRA_ERROR if score is None else OutcomeStatus.GRADED,
        )
        for index, score in enumerate(scores)
    ]
