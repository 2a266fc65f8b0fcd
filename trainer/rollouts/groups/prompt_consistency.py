"""One question per group: a baseline compares answers to the same one.

Tools and words may come from the environment, one instance of which may list other tools, or say
something else when it is reset, than those of the other rollouts of its group.
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
    """Return the rollouts of a task; those graded on another prompt than most are infra errors.

    Where two prompts are as frequent, that of the earlier sample stays.
    """
    graded = [rollout for rollout in group if rollout.trajectory.reward is not None]
    prompts = Counter(_prompt(rollout) for rollout in graded)
    if len(prompts) <= 1:
        return tuple(group)
    ((common, _),) = prompts.most_common(1)
    return tuple(_judged(rollout, common) for rollout in group)


def _judged(rollout: Rollout, common: tuple[int, ...]) -> Rollout:
    trajectory = rollout.trajectory
    if trajectory.reward is None or _prompt(rollout) == common:
        return rollout
    _log.info("rollout %s: its prompt is not that of its group", trajectory.rollout_id)
    return replace(
        rollout,
        trajectory=replace(
            trajectory,
            outcome=Outcome(status=OutcomeStatus.INFRA_ERROR, reason=PromptDiffers.code),
            stop_reason=StopReason.INFRA_ERROR,
        ),
        infra_errors=(*rollout.infra_errors, PromptDiffers.code),
    )


def _prompt(rollout: Rollout) -> tuple[int, ...]:
    trajectory = rollout.trajectory
    return trajectory.token_ids[: trajectory.prompt_length]
