"""A loss with streams of its own, in the form of a file of `trainer/algo/loss`; no paper has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from hillclimb.environment.task import Task
from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.fixtures.tiny import random_ids, task, trajectory
from trainer.algo.batch import BatchPlan, build_batch, score_groups
from trainer.algo.loss.action_tokens import ActionTokens, BySequence
from trainer.algo.loss.clipped import Surrogate
from trainer.algo.loss.loss import VARIANTS, Variant
from trainer.algo.sequences import Batch
from trainer.algo.signal import ScoredGroup
from trainer.algo.streams import Stream
from trainer.types import Group, Trajectory

CREDITS = Stream(name="credits", alignment="action")
LEVELS = Stream(name="levels", alignment="action", dtype="int32")
"""[T, 2, 3]: as wide as the experts of two layers of which three compute each token."""
BONUSES = Stream(name="bonuses", alignment="sequence")
ALGORITHM = AlgorithmSpec(loss_reduction="token_mean").model_copy(
    update={"policy_loss_type": "credited"}
)


def credited(logprobs: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec) -> Surrogate:
    """-(advantage x credit + bonus + sum of levels) x log pi."""
    bonuses = BySequence.of(actions).to_tokens(actions.further["bonuses"])
    levels = actions.further["levels"].sum((1, 2))
    values = actions.advantages_A * actions.further["credits"] + bonuses + levels
    never = torch.zeros_like(logprobs, dtype=torch.bool)
    return Surrogate(
        losses_A=-values * logprobs,
        clipped_low_A=never,
        clipped_high_A=never,
        dual_clipped_A=never,
    )


def credits_of(rollout: Trajectory, _: ScoredGroup) -> np.ndarray:
    """Less for a later token."""
    return 1.0 / (1.0 + np.arange(len(rollout.token_ids)))


def levels_of(rollout: Trajectory, _: ScoredGroup) -> np.ndarray:
    """Other ones for each token, layer and place."""
    length = len(rollout.token_ids)
    return np.arange(length * 6).reshape(length, 2, 3) % 5


def bonuses_of(rollout: Trajectory, scored: ScoredGroup) -> float:
    """The share of the group's reward."""
    assert rollout.reward is not None
    return rollout.reward / sum(each for each in scored.rewards_G if each is not None)


@contextmanager
def registered() -> Iterator[None]:
    """Offer the loss under its name, as its line in `loss.py` would."""
    streams = {CREDITS: credits_of, LEVELS: levels_of, BONUSES: bonuses_of}
    own = Variant(surrogate=credited, streams=streams)
    with mock.patch("trainer.algo.loss.loss.VARIANTS", {**VARIANTS, "credited": own}):
        yield


def groups() -> list[Group]:
    """Three groups of rollouts of two to eleven tokens."""
    made = []
    for number in range(3):
        of = task(f"t{number}")
        rewards = (1.0, 0.25, 0.0, 0.5)
        rollouts = [
            a_rollout(reward, of, index, 2 + 3 * index if number else 3)
            for index, reward in enumerate(rewards)
        ]
        made.append(Group(task=of, trajectories=tuple(rollouts)))
    return made


def a_rollout(reward: float, of: Task, index: int, length: int) -> Trajectory:
    """One of `length` tokens after its prompt; the third, if more follow, is an observation."""
    response = tuple(random_ids(length, seed=length))
    made = trajectory(reward, of=of, sample_index=index, response=response)
    end = made.prompt_length + 2
    mask = tuple(drawn and (at != end or length < 4) for at, drawn in enumerate(made.action_mask))
    return replace(made, action_mask=mask)


def a_batch(algorithm: AlgorithmSpec = ALGORITHM) -> Batch:
    """The step's batch of these groups, in one mini-batch."""
    plan = BatchPlan(mini_batch_size=3, temperatures={"booking": 1.0}, seed=0)
    return build_batch(score_groups(groups(), algorithm, seed=0), algorithm, plan)
