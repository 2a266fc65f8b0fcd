"""Rewards of OpenEnv servers: mapped from their range onto [0, 1], and never left out unsaid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hillclimb.environment.base import Grade
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.openenv import OpenEnvServer
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.envs.openenv.servers import Served
from tests.trainer.envs.openenv.test_episode import a_provider, a_task, played
from tests.trainer.fixtures.scripted import ScriptedEngine, a_collector, a_request
from trainer.envs.openenv.rewards import RewardScale
from trainer.errors import SpecError
from trainer.jobs.validate.checks import Checker
from trainer.jobs.validate.episodes import EpisodeRunner

ACT = '<tool_call>{"name": "act", "arguments": {"take": 3}}</tool_call>'
REQUEST = replace(a_request(), temperatures={"countdown": 1.0})


def a_scale(**settings: Any) -> RewardScale:
    return RewardScale("maze", OpenEnvServer(url="http://127.0.0.1:1", **settings))


def scores(rewards: Sequence[float], **settings: Any) -> list[float | None]:
    scale = a_scale(**settings)
    return [scale.grade([reward]).score for reward in rewards]


@pytest.mark.parametrize(
    ("rewards", "reward_range", "expected"),
    [
        ((10, -0.25), (-0.25, 10), [1.0, 0.0]),  # maze: solved, not solved
        ((0.1, -0.1, -0.9), (-0.9, 0.1), [1.0, 0.8, 0.0]),  # coding: a program, two bad ones
        ((1, 0, -1), (-1, 1), [1.0, 0.5, 0.0]),  # connect4: won, drawn, illegal move
        ((1, 0, -0.1), (-0.1, 1), [1.0, 1 / 11, 0.0]),  # chess
        ((-0.46, 0.54), (-0.46, 0.54), [0.0, 1.0]),  # wildfire
    ],
)
def test_a_range_maps_rewards_onto_0_to_1(
    rewards: Sequence[float], reward_range: tuple[float, float], expected: list[float]
) -> None:
    assert scores(rewards, reward_range=reward_range) == pytest.approx(expected)
    clipped = scores(rewards, reward_range=reward_range, reward_outside="clip")
    assert clipped == pytest.approx(expected), "nothing to clip"


def test_the_reward_of_the_server_stays_in_the_grade() -> None:
    maze = a_scale(reward_range=(-0.25, 10))
    assert maze.grade([0.0, 10]) == Grade(score=1.0, detail="the server's reward: 10")
    clipped = a_scale(reward_outside="clip").grade([-0.46])
    assert clipped == Grade(score=0.0, detail="the server's reward: -0.46, clipped to 0")
    added = a_scale(reward="sum", reward_range=(0, 4), reward_outside="clip").grade([3, 2.5])
    assert added == Grade(score=1.0, detail="the sum of an episode's rewards: 5.5, clipped to 4")
    assert a_scale().grade([0.25]) == Grade(score=0.25), "as it is"


def test_a_refusal_names_the_values_and_the_keys() -> None:
    maze = a_scale()
    maze.grade([0.5])
    with pytest.raises(SpecError) as refused:
        maze.grade([-0.25])
    assert str(refused.value) == (
        "environment.openenv.maze.reward_range is [0, 1], but the server's reward was -0.25; seen"
        " so far: -0.25 to 0.5. Episodes without a grade would bias all figures, so set"
        " reward_range to the lowest and the highest reward that an episode can have, or"
        " reward_outside: clip"
    )
    with pytest.raises(SpecError, match=r"was 10; seen so far: -0\.25 to 10\."):
        maze.grade([10])


def test_rounding_is_not_outside_of_the_range() -> None:
    assert scores([1.0000001192092896, -1e-9]) == [1.0, 0.0]
    assert scores([10.000001], reward_range=(0, 10)) == [1.0]
    with pytest.raises(SpecError):
        scores([1.0001])


@pytest.mark.parametrize("reward", [math.nan, math.inf, "much", None])
@pytest.mark.parametrize("outside", ["clip", "refuse"])
def test_what_is_no_number_is_no_grade(reward: object, outside: str) -> None:
    found = a_scale(reward_outside=outside).grade([0.5, reward])
    assert found == Grade(score=None, reason="the server gave a reward that is not a number")


async def test_a_server_with_losses_below_zero_is_graded_by_its_range(countdown: Served) -> None:
    settings = {"reward_range": [-1, 3]}
    lost = await played(countdown, [3], settings, rewards=[0.0, -1.0])
    won = await played(countdown, [3], settings, rewards=[0.0, 3.0])
    assert (lost.score, won.score) == (0.0, 1.0)
    assert lost.detail == "the server's reward: -1"


async def test_rollouts_end_with_the_rewards_in_words(countdown: Served) -> None:
    """Left out as ungraded, losses would vanish from pass@1 and from the baselines."""
    collector = a_collector(ScriptedEngine(lambda _, __: ACT), a_provider(countdown))
    tasks = [a_task(rewards=[0.0, reward]) for reward in (1.0, -0.9)]
    keyed = [replace(task, key=f"{task.key}/{i}") for i, task in enumerate(tasks)]
    with pytest.raises(SpecError, match=r"countdown\.reward_range is \[0, 1\].*was -0\.9"):
        await collector.collect(keyed, REQUEST)


async def test_a_validation_ends_with_the_rewards_in_words(countdown: Served) -> None:
    environment = EnvironmentSpec(max_infra_retries=0)
    runner = EpisodeRunner(
        provider=a_provider(countdown),
        environment=environment,
        rollout=RolloutSpec(),
        episode_s=60.0,
    )
    checker = Checker(episodes=runner, pass_threshold=1.0, solver=None)
    with pytest.raises(SpecError, match=r"was -0\.25.*reward_outside: clip"):
        await checker.check(a_task(rewards=[-0.25]))
