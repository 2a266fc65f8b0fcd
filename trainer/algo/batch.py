"""From the groups of a step to mini-batches: which tokens are trained on, with which weight.

Infra errors, rollouts without a grade and zero advantages never become a sequence here, so no
later stage has to know about them. Legend: T tokens of one sequence.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.algo.advantage import group_advantages, shuffled_rewards
from trainer.contract.sections import AlgorithmSpec
from trainer.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSequence:
    """One rollout as the learner sees it. `token_ids`, `action_mask`, `logprobs` are all [T]."""

    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    """True where the policy drew the token: these, and only these, enter the loss."""
    logprobs: tuple[float, ...]
    """Behaviour log-probs as sampled (at `temperature`); 0.0 outside the action mask."""
    prompt_length: int
    """Tokens before the first turn: equal for all rollouts of a prompt, so computed once."""
    advantage: float
    temperature: float

    @property
    def num_actions(self) -> int:
        """How many tokens enter the loss."""
        return sum(self.action_mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one training step learns from: per mini-batch the sequences that carry a gradient."""

    mini_batches: tuple[tuple[TrainingSequence, ...], ...]
    """Split by prompt; mini-batches left without a sequence are not in the list."""

    @property
    def num_sequences(self) -> int:
        """Sequences over all mini-batches."""
        return sum(len(mini_batch) for mini_batch in self.mini_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How groups become mini-batches."""

    mini_batch_size: int
    """Prompts per mini-batch."""
    temperatures: Mapping[str, float]
    """Sampling temperature by environment key: the loss needs log-probs at the same one."""
    seed: int
    """Decides which prompts share a mini-batch, and the deal of `shuffle_rewards`."""


def build_batch(groups: Sequence[Group], *, algorithm: AlgorithmSpec, plan: BatchPlan) -> Batch:
    """The step's batch: advantages per group, then mini-batches of whole groups.

    Groups are put in a seeded random order first, because they arrive sorted by environment and
    a mini-batch of a single environment would pull the policy one way and then the other.
    """
    rewards = [tuple(trajectory.reward for trajectory in group.trajectories) for group in groups]
    if algorithm.shuffle_rewards:
        rewards = shuffled_rewards(rewards, seed=plan.seed)
    per_group = [
        _sequences(group, rewards_G, algorithm=algorithm, plan=plan)
        for group, rewards_G in zip(groups, rewards, strict=True)
    ]
    random.Random(plan.seed).shuffle(per_group)
    mini_batches = (
        tuple(
            sequence
            for group in per_group[start : start + plan.mini_batch_size]
            for sequence in group
        )
        for start in range(0, len(per_group), plan.mini_batch_size)
    )
    return Batch(mini_batches=tuple(mini_batch for mini_batch in mini_batches if mini_batch))


def _sequences(
    group: Group,
    rewards_G: Sequence[float | None],
    *,
    algorithm: AlgorithmSpec,
    plan: BatchPlan,
) -> list[TrainingSequence]:
    advantages_G = group_advantages(rewards_G, norm_by_std=algorithm.grpo_norm_by_std)
    return [
        TrainingSequence(
            token_ids=trajectory.token_ids,
            action_mask=trajectory.action_mask,
            logprobs=trajectory.logprobs,
            prompt_length=trajectory.prompt_length,
            advantage=advantage,
            temperature=plan.temperatures[group.task.env_key],
        )
        for trajectory, advantage in zip(group.trajectories, advantages_G, strict=True)
        if advantage != 0.0 and any(trajectory.action_mask)
    ]
