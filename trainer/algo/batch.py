"""Builds a step's mini-batches from its groups: the trained tokens and their advantages.

Infra errors, rollouts without a grade and groups without contrast never become a sequence here, so
no later stage has to know about them. Legend: _G the rollouts of one group.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.advantage import group_advantages, shuffled_rewards
from trainer.algo.overlong import is_overlong
from trainer.algo.sequences import Batch, LossCounts, TrainingSequence
from trainer.algo.signal import ScoredGroup, signal_metrics
from trainer.algo.stepwise import turns_of
from trainer.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Settings that turn groups into mini-batches."""

    mini_batch_size: int
    """Prompts per mini-batch."""
    temperatures: Mapping[str, float]
    """Sampling temperature by environment key: the loss needs log-probs at the same one."""
    seed: int
    """Decides which prompts share a mini-batch."""


def score_groups(
    groups: Sequence[Group], algorithm: AlgorithmSpec, *, seed: int
) -> list[ScoredGroup]:
    """Compute each group's advantages; `seed` fixes the permutation of `shuffle_rewards`."""
    rewards = [tuple(trajectory.reward for trajectory in group.trajectories) for group in groups]
    if algorithm.shuffle_rewards:
        rewards = shuffled_rewards(rewards, seed=seed)
    return [
        ScoredGroup(
            group=group,
            rewards_G=rewards_G,
            advantages_G=group_advantages(rewards_G, norm_by_std=algorithm.grpo_norm_by_std),
        )
        for group, rewards_G in zip(groups, rewards, strict=True)
    ]


def build_batch(
    scored_groups: Sequence[ScoredGroup], algorithm: AlgorithmSpec, plan: BatchPlan
) -> Batch:
    """Build the step's batch: mini-batches of whole groups.

    Groups are put in a seeded random order first, because they arrive sorted by environment and
    a mini-batch of a single environment would pull the policy one way and then the other. A
    mini-batch is counted in prompts, so `step_wise` changes nothing about their number.
    """
    per_group = [(tuple(_sequences(each, algorithm, plan)), each) for each in scored_groups]
    random.Random(plan.seed).shuffle(per_group)
    mini_batches = []
    for start in range(0, len(per_group), plan.mini_batch_size):
        part = per_group[start : start + plan.mini_batch_size]
        sequences = tuple(sequence for own, _ in part for sequence in own)
        if algorithm.normalize_by == "batch":
            counts = _loss_counts([scored for _, scored in part], algorithm)
            sequences = tuple(replace(each, loss_counts=counts) for each in sequences)
        mini_batches.append(sequences)
    return Batch(
        mini_batches=tuple(mini_batch for mini_batch in mini_batches if mini_batch),
        metrics=signal_metrics(scored_groups, algorithm)
        | {"policy/num_sequences": float(sum(map(len, mini_batches)))},
    )


def learned_rollouts(
    scored_groups: Sequence[ScoredGroup], algorithm: AlgorithmSpec
) -> frozenset[str]:
    """Return the ids of the rollouts that have a sequence in the batch of these groups."""
    return frozenset(
        trajectory.rollout_id
        for scored in scored_groups
        for trajectory, _ in _learned(scored, algorithm)
    )


def _sequences(
    scored: ScoredGroup, algorithm: AlgorithmSpec, plan: BatchPlan
) -> Iterator[TrainingSequence]:
    """Yield the group's sequences that carry a gradient; the loss is normalised over them."""
    group = scored.group
    _assert_one_prompt(group)
    for trajectory, advantage in _learned(scored, algorithm):
        sequence = TrainingSequence(
            token_ids=trajectory.token_ids,
            action_mask=trajectory.action_mask,
            logprobs=trajectory.logprobs,
            prompt_length=trajectory.prompt_length,
            advantage=advantage,
            temperature=plan.temperatures[group.task.env_key],
            weight_versions=trajectory.weight_versions,
            rollout_id=trajectory.rollout_id,
            routes=trajectory.routes,
        )
        yield from turns_of(sequence) if algorithm.step_wise else (sequence,)


def _loss_counts(scored_groups: Sequence[ScoredGroup], algorithm: AlgorithmSpec) -> LossCounts:
    """Count all graded rollouts of a mini-batch, with a gradient or without one.

    Those that `apply_overlong_filtering` masks have no token in the loss, here as in SkyRL.
    """
    masks = [
        trajectory.action_mask
        for scored in scored_groups
        for trajectory, reward in zip(scored.group.trajectories, scored.rewards_G, strict=True)
        if reward is not None
        and any(trajectory.action_mask)
        and not (algorithm.apply_overlong_filtering and is_overlong(trajectory))
    ]
    num_turns = sum(drawn for mask in masks for drawn, _ in groupby(mask))
    return LossCounts(
        num_sequences=num_turns if algorithm.step_wise else len(masks),
        num_actions=sum(map(sum, masks)),
    )


def _learned(scored: ScoredGroup, algorithm: AlgorithmSpec) -> Iterator[tuple[Trajectory, float]]:
    for trajectory, advantage in scored.with_gradient(algorithm):
        if not (algorithm.apply_overlong_filtering and is_overlong(trajectory)):
            yield trajectory, advantage


def _assert_one_prompt(group: Group) -> None:
    """Assert that the graded rollouts share one prompt, as their common baseline requires."""
    graded = [each for each in group.trajectories if each.reward is not None]
    prompts = {each.token_ids[: each.prompt_length] for each in graded}
    assert len(prompts) <= 1, f"group of {group.task.key} holds {len(prompts)} different prompts"
