"""Every deadline of a rollout, met by hanging what it bounds, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
import torch
from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from tests.trainer.rollouts.test_episode import roll
from trainer.engines.base import EngineStats
from trainer.errors import EngineError
from trainer.rollouts.request import Rollout
from trainer.types import Sample, SamplingParams

SHORT_S, LONG_S = 0.05, 60.0


class Hanging(CountingEnv):
    """A counting environment one of whose operations never answers."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        await self._hang("reset")
        return await super().reset()

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        await self._hang("call")
        return await super().call(name, arguments)

    async def score(self) -> Grade:
        await self._hang("score")
        return await super().score()

    async def _hang(self, operation: str) -> None:
        if operation == self.hangs_in:
            await asyncio.Event().wait()

    hangs_in: str = ""


async def hung(operation: str, **deadlines: Any) -> tuple[Rollout, float]:
    """What becomes of a rollout whose environment hangs in an operation, and the time it took."""
    kind = type("HangsSomewhere", (Hanging,), {"hangs_in": operation})
    spec = EnvironmentSpec(**{"call_timeout_s": LONG_S, "max_infra_retries": 0, **deadlines})
    began = time.monotonic()
    found, _, provider = await roll(ADD, DONE, env=lambda _: kind(goal=1), environment=spec)
    assert [env.num_closed for env in provider.envs] == [1]
    return found, time.monotonic() - began


@pytest.mark.parametrize(
    ("operation", "deadline", "status", "reason"),
    [
        ("reset", "reset_timeout_s", OutcomeStatus.INFRA_ERROR, "env_unavailable"),
        ("call", "call_timeout_s", OutcomeStatus.INFRA_ERROR, "tool_transport"),
        ("score", "verifier_timeout_s", OutcomeStatus.UNGRADED, "verifier_unavailable"),
    ],
)
async def test_an_operation_that_hangs_is_ended_by_its_own_deadline(
    operation: str, deadline: str, status: OutcomeStatus, reason: str
) -> None:
    found, took_s = await hung(operation, **{deadline: SHORT_S})
    assert (found.trajectory.outcome.status, found.trajectory.outcome.reason) == (status, reason)
    assert found.trajectory.reward is None
    assert took_s == pytest.approx(SHORT_S, abs=0.001)


@pytest.mark.parametrize("deadline", ["turn_timeout_s", "trajectory_timeout_s"])
async def test_a_call_that_hangs_is_no_zero_where_the_policy_had_used_more(deadline: str) -> None:
    """The outer deadline passes first: what the policy took before is over half of it."""
    kind = type("HangsInCall", (Hanging,), {"hangs_in": "call"})
    environment = EnvironmentSpec(**{"call_timeout_s": 0.2, deadline: 0.35, "max_infra_retries": 0})
    found, _, _ = await roll(ADD, delay_s=0.2, env=lambda _: kind(goal=1), environment=environment)
    outcome = found.trajectory.outcome
    assert (outcome.status, outcome.reason) == (OutcomeStatus.INFRA_ERROR, "tool_transport")
    assert [(each.kind, each.failed) for each in found.operations] == [
        ("reset", False),
        ("call", True),
    ]


async def test_a_turn_that_slow_sampling_made_late_has_no_grade_once_its_call_answered() -> None:
    environment = EnvironmentSpec(call_timeout_s=0.2, turn_timeout_s=0.25)
    found, engine, provider = await roll(
        ADD,
        delay_s=0.15,
        env=lambda _: CountingEnv(goal=1, call_delay_s=0.12),
        environment=environment,
    )
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE
    assert found.trajectory.reward is None
    assert (len(engine.requests), provider.envs[0].count) == (1, 1)


@pytest.mark.parametrize("deadline", ["turn_timeout_s", "trajectory_timeout_s"])
async def test_calls_in_time_may_yet_use_up_the_turn_or_the_trajectory(deadline: str) -> None:
    environment = EnvironmentSpec(**{deadline: 0.3, "call_timeout_s": 0.29, "max_infra_retries": 0})
    found, _, _ = await roll(
        ADD + ADD,
        env=lambda _: CountingEnv(goal=9, call_delay_s=0.2),
        environment=environment,
    )
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.trajectory.outcome.reason == "env_deadline"


@pytest.mark.parametrize(
    ("grade_late", "status", "score", "reason"),
    [
        ("ungraded", OutcomeStatus.UNGRADED, None, "sampling_late"),
        ("zero", OutcomeStatus.GRADED, 0.0, None),
    ],
)
async def test_slow_sampling_is_no_fault_of_the_policy_unless_the_spec_says_so(
    grade_late: Literal["ungraded", "zero"],
    status: OutcomeStatus,
    score: float | None,
    reason: str | None,
) -> None:
    """It is sampled once: another try would wait in the same queue."""
    environment = EnvironmentSpec(
        call_timeout_s=SHORT_S / 2, turn_timeout_s=SHORT_S, grade_late=grade_late
    )
    found, engine, _ = await roll(ADD, delay_s=LONG_S, environment=environment)
    outcome = found.trajectory.outcome
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE
    assert (outcome.status, outcome.score, outcome.reason) == (status, score, reason)
    assert len(engine.requests) == 1


async def test_every_turn_has_the_turns_time_anew() -> None:
    environment = EnvironmentSpec(call_timeout_s=0.9, turn_timeout_s=1.0, max_turns=3)
    found, _, _ = await roll(ADD, ADD, DONE, delay_s=SHORT_S, environment=environment)
    assert found.num_turns == 3
    assert found.trajectory.stop_reason is StopReason.DONE


async def test_tries_share_one_clock_and_a_bounded_allowance() -> None:
    """Three tries of a reset that hangs would take three deadlines; there is time for two."""
    kind = type("HangsInReset", (Hanging,), {"hangs_in": "reset"})
    provider = CountingProvider(lambda _: kind(goal=1))
    environment = EnvironmentSpec(
        call_timeout_s=0.2,
        reset_timeout_s=0.2,
        trajectory_timeout_s=0.25,
        infra_retry_allowance_s=0.1,
        max_infra_retries=5,
    )
    collector = a_collector(ScriptedEngine(lambda *_: DONE), provider, environment=environment)
    began = time.monotonic()
    ((found,),) = await collector.collect([a_task()], a_request())
    assert len(provider.envs) == 2
    assert found.infra_errors == ("env_unavailable", "env_deadline")
    assert found.trajectory.num_infra_retries == 1
    assert time.monotonic() - began == pytest.approx(0.35, abs=0.001)


async def test_time_that_earlier_tries_lost_is_never_the_policys() -> None:
    """The second try has little time left: that the policy then uses it all is no fault of its."""
    slow = ScriptedEngine(lambda turn, _: ADD, delay_s=0.0)

    class Late(ScriptedEngine):
        async def sample(self, *args: Any, **kwargs: Any) -> Sample:
            await asyncio.sleep(LONG_S)
            return await super().sample(*args, **kwargs)

    provider = CountingProvider(
        lambda i: type("Once", (Hanging,), {"hangs_in": "" if i else "reset"})(goal=1)
    )
    environment = EnvironmentSpec(
        call_timeout_s=0.1, trajectory_timeout_s=0.15, infra_retry_allowance_s=0.0
    )
    collector = a_collector(Late(slow.policy), provider, environment=environment)
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.infra_errors == ("env_unavailable", "env_deadline")


class Dead(ScriptedEngine):
    """An engine that answers nothing any more."""

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        await asyncio.Event().wait()
        raise AssertionError

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        await asyncio.Event().wait()
        raise AssertionError


async def test_an_engine_that_hangs_is_no_slow_policy() -> None:
    environment = EnvironmentSpec(call_timeout_s=SHORT_S / 2, turn_timeout_s=SHORT_S)
    collector = a_collector(Dead(lambda *_: DONE), CountingProvider(), environment=environment)
    with pytest.raises(EngineError, match="the engine hangs: it drew no token for a whole turn"):
        await collector.collect([a_task()], a_request(n=4))


async def test_an_engine_that_draws_for_others_is_alive() -> None:
    class Busy(Dead):
        num_drawn = 0

        def stats(self) -> EngineStats:
            self.num_drawn += 1
            return EngineStats(
                num_sampled_tokens=self.num_drawn, num_prefill_tokens=0, num_cached_tokens=0,
                busy_s=0.0,
            )  # fmt: skip

    environment = EnvironmentSpec(call_timeout_s=SHORT_S / 2, turn_timeout_s=SHORT_S)
    collector = a_collector(Busy(lambda *_: DONE), CountingProvider(), environment=environment)
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE


@pytest.mark.parametrize("has_deadlines", [True, False])
async def test_without_deadlines_a_rollout_takes_the_time_it_takes(has_deadlines: bool) -> None:
    """As in a deterministic run, where no clock may decide an outcome."""
    collector = a_collector(
        ScriptedEngine(lambda turn, _: DONE if turn else ADD),
        CountingProvider(lambda _: CountingEnv(goal=1, call_delay_s=SHORT_S)),
        environment=EnvironmentSpec(call_timeout_s=SHORT_S / 10, max_infra_retries=0),
        has_deadlines=has_deadlines,
    )
    (rollout,) = await collector.group(a_task(), a_request())
    expected = OutcomeStatus.INFRA_ERROR if has_deadlines else OutcomeStatus.GRADED
    assert rollout.trajectory.outcome.status is expected
