"""Who answers for time that is over, with an engine that computes in the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import pytest

from hillclimb.environment.base import Grade
from hillclimb.environment.errors import (
    EnvUnavailable,
    RolloutDeadline,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.spec.environment.environment import EnvironmentSpec
from tests.trainer.fixtures.scripted import ADD, DONE, CountingEnv
from tests.trainer.rollouts.conftest import VirtualClock
from tests.trainer.rollouts.test_episode import roll
from trainer.rollouts.limits.budget import PolicyTimeUp, RolloutClock, TimeBudget
from trainer.rollouts.limits.limits import RolloutLimits

CALL_S, HANGS_S = 0.01, 60.0
OUTER_S = 0.2
"""A turn's or a trajectory's."""


def a_budget(
    *,
    trajectory_s: float = 30.0,
    turn_s: float = 30.0,
    blocked: Callable[[], float] = lambda: 0.0,
) -> TimeBudget:
    limits = RolloutLimits(
        max_turns=1, max_input_length=1, max_generate_length=1, max_sequence_length=2,
        call_timeout_s=CALL_S, reset_timeout_s=CALL_S, verifier_timeout_s=CALL_S,
        turn_timeout_s=turn_s, trajectory_timeout_s=trajectory_s, infra_retry_allowance_s=0.0,
    )  # fmt: skip
    return TimeBudget(RolloutClock(limits), blocked)


async def test_a_call_that_waits_for_the_engine_is_not_late() -> None:
    began = time.monotonic()
    budget = a_budget(blocked=lambda: time.monotonic() - began)
    async with budget.environment("call", ToolTransport("late"), at_most_s=CALL_S):
        await asyncio.sleep(3 * CALL_S)
    async with budget.grading(VerifierUnavailable("late")):
        await asyncio.sleep(3 * CALL_S)
    assert budget.env_s < CALL_S


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_answer_that_came_while_the_loop_was_blocked_counts(
    is_known: bool, clock: VirtualClock
) -> None:
    """By the engine, which says so, or by whatever else held the loop or the machine."""
    blocked = 0.0
    loop = asyncio.get_running_loop()

    def block() -> None:
        nonlocal blocked
        clock.advance(3 * CALL_S)
        blocked += 3 * CALL_S

    answered = loop.create_future()
    loop.call_soon(block)
    loop.call_later(CALL_S / 2, answered.set_result, None)
    budget = a_budget(blocked=lambda: blocked if is_known else 0.0)
    async with budget.environment("call", ToolTransport("late"), at_most_s=CALL_S):
        await answered


async def test_a_hanging_call_is_the_environments_and_a_hanging_verifier_gives_no_grade() -> None:
    budget = a_budget()
    with pytest.raises(ToolTransport):
        async with budget.environment("call", ToolTransport("late"), at_most_s=CALL_S):
            await asyncio.sleep(HANGS_S)
    with pytest.raises(VerifierUnavailable):
        async with budget.grading(VerifierUnavailable("late")):
            await asyncio.sleep(HANGS_S)


@pytest.mark.parametrize("kind", ["reset", "call"])
async def test_an_environments_own_timeout_error_is_never_the_policys(
    kind: Literal["reset", "call"],
) -> None:
    """The trajectory's time ends before the operation's, and the policy used nearly all of it."""
    budget = a_budget(trajectory_s=OUTER_S)
    budget.policy_s = HANGS_S
    with pytest.raises(ToolTransport):
        async with budget.environment(kind, ToolTransport("late"), at_most_s=1.5 * OUTER_S):
            raise TimeoutError


async def test_who_used_most_of_the_trajectorys_time_answers_for_its_end() -> None:
    budget = a_budget(trajectory_s=CALL_S / 2)
    with pytest.raises(RolloutDeadline):
        async with budget.environment("reset", EnvUnavailable("late"), at_most_s=CALL_S):
            await asyncio.sleep(HANGS_S)
    budget.policy_s = HANGS_S
    with pytest.raises(PolicyTimeUp):
        async with budget.policy():
            pass


@pytest.mark.parametrize("outer", ["trajectory", "turn"])
async def test_a_call_that_never_answers_is_the_environments_whoever_was_slow_before(
    outer: str,
) -> None:
    """The outer time is over first, and the policy had used nearly all of it."""
    budget = a_budget(trajectory_s=OUTER_S) if outer == "trajectory" else a_budget(turn_s=OUTER_S)
    with budget.turn():
        budget.policy_s += HANGS_S
        with pytest.raises(ToolTransport):
            async with budget.environment("call", ToolTransport("late"), at_most_s=1.5 * OUTER_S):
                await asyncio.sleep(HANGS_S)
    ((kind, failed),) = [(each.kind, each.failed) for each in budget.operations]
    assert (kind, failed) == ("call", True)


@pytest.mark.parametrize("outer", ["trajectory", "turn"])
@pytest.mark.parametrize(("policy_s", "error"), [(HANGS_S, PolicyTimeUp), (0.0, RolloutDeadline)])
async def test_an_answer_after_the_outer_time_is_taken_and_what_comes_next_is_not(
    outer: str, policy_s: float, error: type[Exception]
) -> None:
    budget = a_budget(trajectory_s=OUTER_S) if outer == "trajectory" else a_budget(turn_s=OUTER_S)
    with budget.turn():
        budget.policy_s += policy_s
        async with budget.environment("call", ToolTransport("late"), at_most_s=HANGS_S):
            await asyncio.sleep(1.5 * OUTER_S)
        with pytest.raises(error):
            budget.refuse_late()
    assert [each.failed for each in budget.operations] == [False]


async def test_a_hanging_reset_and_a_hanging_score_end_the_rollout_without_a_zero() -> None:
    class HangsInReset(CountingEnv):
        async def reset(self) -> tuple[()]:
            await asyncio.sleep(HANGS_S)
            return ()

    class HangsInScore(CountingEnv):
        async def score(self) -> Grade:
            await asyncio.sleep(HANGS_S)
            return Grade(score=1.0)

    environment = EnvironmentSpec(call_timeout_s=CALL_S, max_infra_retries=1)
    found, _, provider = await roll(
        ADD, DONE, env=lambda _: HangsInReset(goal=1), environment=environment
    )
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.infra_errors == ("env_unavailable",) * 2
    assert [env.num_closed for env in provider.envs] == [1, 1]
    found, _, _ = await roll(ADD, DONE, env=lambda _: HangsInScore(goal=1), environment=environment)
    assert found.trajectory.outcome.status is OutcomeStatus.UNGRADED
    assert found.trajectory.reward is None
