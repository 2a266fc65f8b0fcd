"""Dynamic sampling: a step learns from groups that teach something, and says what that took.

Pure: what is drawn again is decided by `trainer/rollouts/redrawing.py` while rollouts are made,
what is learned from is decided here once they are. Source: DAPO (arXiv:2503.14476, section 3.2) for
`filter`, Polaris for `replace`; meanings as in SkyRL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainer.contract.algorithm import DynamicSamplingSpec
from trainer.contract.contrast import differ
from trainer.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a step learns from."""

    groups: tuple[Group, ...]
    """With `replace`, a group may stand here more than once."""
    gave_up: str | None = None
    """A sentence, where max_sample_batches was too few to meet the rule."""
    metrics: dict[str, float] = field(default_factory=dict)
    """`dynamic_sampling/...`; empty without a rule."""


def has_contrast(rewards: Iterable[float | None]) -> bool:
    """Tell whether two grades differ: None is the reward of a rollout without a grade."""
    return differ([reward for reward in rewards if reward is not None])


def teaches(group: Group) -> bool:
    """Tell whether two graded rollouts of the group scored differently."""
    return has_contrast(each.reward for each in group.trajectories)


def teaches_enough(num_teaching: int, num_groups: int, rule: DynamicSamplingSpec) -> bool:
    """Tell whether `replace` fills up a batch of which so many groups teach, or throws it away."""
    return num_teaching > num_groups * rule.min_replace_ratio


def choose(
    taken: Sequence[Group],
    dropped: Sequence[Group],
    *,
    rule: DynamicSamplingSpec | None,
    seed: int,
) -> Chosen:
    """Choose from the groups that a step has `taken`; `dropped` are those drawn again before.

    `seed` decides which groups `replace` copies.
    """
    if rule is None:
        return Chosen(groups=tuple(taken))
    good = [group for group in taken if teaches(group)]
    num_sampled = len(taken) + len(dropped)
    metrics = {
        "dynamic_sampling/num_sampled_prompts": float(num_sampled),
        "dynamic_sampling/keep_rate": (len(good) + sum(map(teaches, dropped))) / num_sampled,
    }
    if rule.type == "filter":
        num_bad = len(taken) - len(good)
        gave_up = _slots_without(num_bad, len(taken), rule) if num_bad else None
        return Chosen(groups=tuple(taken), gave_up=gave_up, metrics=metrics)
    enough = teaches_enough(len(good), len(taken), rule)
    metrics["dynamic_sampling/num_replaced_prompts"] = float(enough * (len(taken) - len(good)))
    if not enough:
        return Chosen(groups=tuple(taken), gave_up=_batches_without(rule), metrics=metrics)
    return Chosen(groups=_filled(taken, good, random.Random(seed)), metrics=metrics)


def _filled(
    batch: Sequence[Group], teaching: Sequence[Group], rng: random.Random
) -> tuple[Group, ...]:
    """The batch with groups that teach nothing replaced by ones that do, each once if they last."""
    num_bad = len(batch) - len(teaching)
    if num_bad <= len(teaching):
        copies = iter(rng.sample(teaching, num_bad))
    else:
        copies = iter(rng.choices(teaching, k=num_bad))
    return tuple(group if teaches(group) else next(copies) for group in batch)


def _slots_without(num_bad: int, num_groups: int, rule: DynamicSamplingSpec) -> str:
    return (
        f"{num_bad} of the step's {num_groups} places drew {rule.max_sample_batches} prompts"
        " (algorithm.dynamic_sampling.max_sample_batches) without one whose rollouts scored"
        f" differently: the step learns from {num_groups - num_bad} groups"
    )


def _batches_without(rule: DynamicSamplingSpec) -> str:
    return (
        f"{rule.max_sample_batches} batches (algorithm.dynamic_sampling.max_sample_batches) were"
        f" drawn, and in none did the rollouts of more than {rule.min_replace_ratio:.0%} of the"
        " prompts (min_replace_ratio) score differently: the step learns from the last one as it is"
    )
