"""Dynamic sampling: a step goes on sampling until it has enough groups that teach something.

Pure: the loop samples, this says what is kept and whether that is enough. Source: DAPO
(arXiv:2503.14476, section 3.2) for `filter`, Polaris for `replace`; meanings as in SkyRL.

    collected = Collected(rule=rule)
    while collected.num_missing:
        collected = collected.add(sample(collected.num_missing), seed=...)
    learn(collected.groups)  # collected.gave_up says whether they are fewer than asked for
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainer.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRule:
    """When a step has sampled enough."""

    type: Literal["filter", "replace"] | None
    """`filter`: only groups that teach count. `replace`: a batch in which enough groups teach is
    filled up with copies of those; any other batch is thrown away. None: every batch will do."""
    num_prompts: int
    """Groups that the step wants."""
    max_sample_batches: int = 30
    """Batches after which the step makes do with what it has."""
    min_replace_ratio: float = 0.3
    """Of `replace`: more than this share of a batch's groups must teach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a step has sampled so far; `add` returns the next one."""

    rule: SamplingRule
    groups: tuple[Group, ...] = ()
    """What the step learns from when it goes no further: at most `rule.num_prompts` groups."""
    num_batches: int = 0
    num_sampled: int = 0
    """Groups over all batches."""
    num_teaching: int = 0
    """Those of them with contrast."""
    num_replaced: int = 0
    """Copies among `groups`."""
    is_complete: bool = False
    """True when the rule is met."""

    @property
    def gave_up(self) -> bool:
        """Whether the batches are used up before the rule is met; `groups` is what there is."""
        return not self.is_complete and self.num_batches >= self.rule.max_sample_batches

    @property
    def num_missing(self) -> int:
        """How many prompts to sample at least before the next `add`; 0 when sampling is over.

        More may be sampled: groups over the number wanted are left out, the latest first.
        """
        if self.is_complete or self.gave_up:
            return 0
        kept = len(self.groups) if self.rule.type == "filter" else 0
        return self.rule.num_prompts - kept

    @property
    def metrics(self) -> dict[str, float]:
        """What it took: batches, groups sampled and the share of them that teach."""
        return {
            "dynamic_sampling/num_batches": float(self.num_batches),
            "dynamic_sampling/num_sampled_prompts": float(self.num_sampled),
            "dynamic_sampling/num_replaced_prompts": float(self.num_replaced),
            "dynamic_sampling/keep_rate": self.num_teaching / max(self.num_sampled, 1),
        }

    def add(self, batch: Sequence[Group], *, seed: int) -> Collected:
        """Take in a batch; `seed` decides which groups `replace` copies."""
        teaching = [group for group in batch if has_contrast(group)]
        counted = replace(
            self,
            num_batches=self.num_batches + 1,
            num_sampled=self.num_sampled + len(batch),
            num_teaching=self.num_teaching + len(teaching),
        )
        if self.rule.type is None:
            return replace(counted, groups=tuple(batch), is_complete=True)
        if self.rule.type == "filter":
            kept = (*self.groups, *teaching)[: self.rule.num_prompts]
            return replace(counted, groups=kept, is_complete=len(kept) == self.rule.num_prompts)
        if len(teaching) <= len(batch) * self.rule.min_replace_ratio:
            return replace(counted, groups=tuple(batch))
        filled = _filled(batch, teaching, random.Random(seed))
        return replace(
            counted,
            groups=filled,
            num_replaced=len(batch) - len(teaching),
            is_complete=True,
        )


def has_contrast(group: Group) -> bool:
    """Tell whether two graded rollouts of the group scored differently."""
    return len({each.reward for each in group.trajectories if each.reward is not None}) > 1


def _filled(
    batch: Sequence[Group], teaching: Sequence[Group], rng: random.Random
) -> tuple[Group, ...]:
    """The batch with groups that teach nothing replaced by ones that do, each once if they last."""
    num_bad = len(batch) - len(teaching)
    if num_bad <= len(teaching):
        copies = iter(rng.sample(teaching, num_bad))
    else:
        copies = iter(rng.choices(teaching, k=num_bad))
    return tuple(group if has_contrast(group) else next(copies) for group in batch)
