"""Dynamic sampling: selects the groups that carry a signal, and counts the prompts it took.

Pure: `trainer/rollouts/groups/resampling.py` decides what is sampled again while rollouts run; this
module decides what is learned from once they are done. Source: DAPO (arXiv:2503.14476, section
3.2) for `filter`, Polaris for `replace`; meanings as in SkyRL.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hillclimb.spec.training.algorithm import DynamicSamplingSpec
from hillclimb.stats.reward_spread import differ
from trainer.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedGroups:
    """The groups that a step learns from."""

    groups: tuple[Group, ...]
    """With `replace`, a group may occur more than once."""
    gave_up: str | None = None
    """Warning, where max_sample_batches was too low to meet the rule."""
    metrics: dict[str, float] = field(default_factory=dict)
    """`dynamic_sampling/...`; empty without a rule."""


def has_reward_spread(rewards: Iterable[float | None]) -> bool:
    """Tell whether two grades differ: None is the reward of a rollout without a grade."""
    return differ([reward for reward in rewards if reward is not None])


def has_signal(group: Group) -> bool:
    """Tell whether two graded rollouts of the group scored differently."""
    return has_reward_spread(each.reward for each in group.trajectories)


def has_enough_signal(num_teaching: int, num_groups: int, rule: DynamicSamplingSpec) -> bool:
    """Tell whether these many groups with signal are enough for `replace` to fill the batch."""
    return num_teaching > num_groups * rule.min_replace_ratio


def select_groups(
    groups: Sequence[Group],
    dropped: Sequence[Group],
    *,
    rule: DynamicSamplingSpec | None,
    seed: int,
) -> SelectedGroups:
    """Select from a step's `groups`; `dropped` are those already replaced by resampling.

    `seed` decides which groups `replace` copies.
    """
    if rule is None:
        return SelectedGroups(groups=tuple(groups))
    good = [group for group in groups if has_signal(group)]
    num_sampled = len(groups) + len(dropped)
    metrics = {
        "dynamic_sampling/num_sampled_prompts": float(num_sampled),
        "dynamic_sampling/keep_rate": (len(good) + sum(map(has_signal, dropped))) / num_sampled,
    }
    if rule.type == "filter":
        num_bad = len(groups) - len(good)
        gave_up = _slots_without(num_bad, len(groups), rule) if num_bad else None
        return SelectedGroups(groups=tuple(groups), gave_up=gave_up, metrics=metrics)
    enough = has_enough_signal(len(good), len(groups), rule)
    metrics["dynamic_sampling/num_replaced_prompts"] = float(enough * (len(groups) - len(good)))
    if not enough:
        return SelectedGroups(groups=tuple(groups), gave_up=_batches_without(rule), metrics=metrics)
    return SelectedGroups(groups=_filled(groups, good, random.Random(seed)), metrics=metrics)


def _filled(
    batch: Sequence[Group], teaching: Sequence[Group], rng: random.Random
) -> tuple[Group, ...]:
    """Replace groups without signal by copies of ones with it, each copied once if they suffice."""
    num_bad = len(batch) - len(teaching)
    if num_bad <= len(teaching):
        copies = iter(rng.sample(teaching, num_bad))
    else:
        copies = iter(rng.choices(teaching, k=num_bad))
    return tuple(group if has_signal(group) else next(copies) for group in batch)


def _slots_without(num_bad: int, num_groups: int, rule: DynamicSamplingSpec) -> str:
    return (
        f"{num_bad} of the step's {num_groups} slots drew {rule.max_sample_batches} prompts"
        " (algorithm.dynamic_sampling.max_sample_batches) without a group whose rollouts scored"
        f" differently: the step learns from {num_groups - num_bad} groups"
    )


def _batches_without(rule: DynamicSamplingSpec) -> str:
    return (
        f"{rule.max_sample_batches} batches (algorithm.dynamic_sampling.max_sample_batches) were"
        f" drawn, and in none did the rollouts of more than {rule.min_replace_ratio:.0%} of the"
        " prompts (min_replace_ratio) score differently: the step learns from the last one as it is"
    )
