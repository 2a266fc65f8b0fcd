"""Stops a run when too many rollouts have no grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hillclimb.environment.errors import NoPrompt, PromptDiffers, PromptTooLong
from hillclimb.protocol.outcomes import StopReason
from trainer.errors import EnvironmentOutage, SpecError
from trainer.rollouts.request import Rollout

_NO_PROMPT = (
    " has no prompt, and its environment's reset returned none: add a prompt to the task, or return"
    " one from the environment's reset"
)
_DIFFERS = (
    " got another prompt for each of its rollouts: make the environment's reset and its list of"
    " tools return the same for the same task and seed"
)


def refuse_outage(rollouts: Sequence[Rollout], *, max_infra_error_rate: float) -> None:
    """Raise if too many of the started rollouts have no grade.

    Raises:
        SpecError: most of them lack one for a reason that the spec or its tasks can fix.
        EnvironmentOutage: any other reason.
    """
    started = [
        each for each in rollouts if each.trajectory.stop_reason is not StopReason.NOT_STARTED
    ]
    missing = [each for each in started if each.trajectory.reward is None]
    rate = len(missing) / len(started) if started else 0.0
    if rate <= max_infra_error_rate:
        return
    places = Counter((each.trajectory.task.env_key, _reason(each)) for each in missing)
    worst = env_key, reason = places.most_common(1)[0][0]
    message = (
        f"{len(missing)} of {len(started)} rollouts have no grade ({rate:.0%}, allowed"
        f" {max_infra_error_rate:.0%}); most often {env_key}: {reason}"
    )
    remedy = _remedy(missing)
    if remedy is not None:
        raise SpecError(f"{message}: {remedy}")
    detail = commonest_detail(
        each for each in missing if (each.trajectory.task.env_key, _reason(each)) == worst
    )
    raise EnvironmentOutage(f"{message} ({detail})" if detail else message)


def commonest_detail(rollouts: Iterable[Rollout]) -> str | None:
    """Return the most frequent cause in words of rollouts without a grade."""
    details = Counter(
        each.trajectory.outcome.detail for each in rollouts if each.trajectory.reward is None
    )
    del details[None]
    return details.most_common(1)[0][0] if details else None


def _remedy(missing: Sequence[Rollout]) -> str | None:
    """Return the change of spec or tasks that would fix most of the missing grades, or None."""
    for code in (PromptTooLong.code, NoPrompt.code, PromptDiffers.code):
        affected = [each.trajectory for each in missing if _reason(each) == code]
        if 2 * len(affected) <= len(missing):
            continue
        if code != PromptTooLong.code:
            return affected[0].task.key + (_NO_PROMPT if code == NoPrompt.code else _DIFFERS)
        longest = max(affected, key=lambda each: each.prompt_length)
        return (
            f"the prompt of {longest.task.key} has {longest.prompt_length} tokens, more than"
            " rollout.max_input_length: raise it"
        )
    return None


def _reason(rollout: Rollout) -> str | None:
    return rollout.trajectory.outcome.reason
