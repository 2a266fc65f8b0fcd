"""One prompt per group: a baseline compares responses to the same prompt.

Tools and prompt may come from the environment, whose instances may list different tools, or
return different prompts, within one group.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hillclimb.environment.errors import PromptDiffers
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from trainer.rollouts.request import Rollout

_log = logging.getLogger(__name__)


def with_one_prompt(group: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """Return the rollouts of a task; graded ones with another prompt than most are infra errors.

    Of two equally frequent prompts, the earlier sample's wins.
    """
    graded = [rollout for rollout in group if rollout.trajectory.reward is not None]
    prompts = Counter(_prompt(rollout) for rollout in graded)
    if len(prompts) <= 1:
        return tuple(group)
    ((common, _),) = prompts.most_common(1)
    return tuple(_checked(rollout, common) for rollout in group)


def _checked(rollout: Rollout, common: tuple[int, ...]) -> Rollout:
    trajectory = rollout.trajectory
    if trajectory.reward is None or _prompt(rollout) == common:
        return rollout
    _log.info("rollout %s: its prompt differs from its group's", trajectory.rollout_id)
    return replace(
        rollout,
        trajectory=replace(
            trajectory,
            outcome=Outcome(
                status=OutcomeStatus.INFRA_ERROR,
                reason=PromptDiffers.code,
                detail="most graded rollouts of the task had another prompt or other tools",
            ),
            stop_reason=StopReason.INFRA_ERROR,
        ),
        infra_errors=(*rollout.infra_errors, PromptDiffers.code),
    )


def _prompt(rollout: Rollout) -> tuple[int, ...]:
    trajectory = rollout.trajectory
    return trajectory.token_ids[: trajectory.prompt_length]
