"""An engine that dies and is started again: whose time that was, and what becomes of rollouts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hillclimb.protocol.outcomes import StopReason
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
from trainer.engines.base import EngineStats
from trainer.errors import EngineError
from trainer.rollouts.limits import liveness
from trainer.types import Sample

TRAJECTORY_S = 0.5


@dataclass
class Restarting(ScriptedEngine):
    """Is away from `dies_at` for `away_s`; what is asked meanwhile waits, as with Ray."""

    dies_at: float = math.inf
    """Seconds after it was first asked."""
    away_s: float = 0.0
    is_gone: bool = False
    """It is not started again."""
    num_drawn: int = 0
    num_looks: int = 0
    began: float = math.inf
    ready_since: float = -math.inf
    asked: list[str] = field(default_factory=list)

    async def sample(self, *args: Any, session: str, **kwargs: Any) -> Sample:
        self.began = min(self.began, time.monotonic())
        self.asked.append(session)
        await self._back()
        sample = await super().sample(*args, session=session, **kwargs)
        # What it had been asked before it died it is asked again.
        await self._back()
        self.num_drawn += len(sample.token_ids)
        return sample

    async def health_check(self) -> bool:
        self.num_looks += 1
        if self.is_gone and self._left_s() > 0.0:
            raise EngineError("a worker process died")
        self._note()
        return self._left_s() <= 0.0

    async def score(self, token_ids: Sequence[int]) -> None:
        await self._back()
        await super().logprobs(token_ids)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_sampled_tokens=self.num_drawn, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0
        )

    def _left_s(self) -> float:
        """Seconds until it is back; 0 while it is there."""
        died = self.began + self.dies_at
        now = time.monotonic()
        return died + self.away_s - now if died <= now < died + self.away_s else 0.0

    async def _back(self) -> None:
        await asyncio.sleep(self._left_s())
        self._note()

    def _note(self) -> None:
        back = self.began + self.dies_at + self.away_s
        if time.monotonic() >= back:
            self.ready_since = back


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "HEALTH_CHECK_PAUSE_S", 0.02)


def short(**more: Any) -> EnvironmentSpec:
    spec = {"trajectory_timeout_s": TRAJECTORY_S, "call_timeout_s": 0.4, "max_infra_retries": 0}
    return EnvironmentSpec(**{**spec, **more})


async def test_rollouts_of_an_engine_that_is_away_longer_than_they_may_take_begin_again() -> None:
    engine = Restarting(lambda turn, _: (ADD, DONE)[turn], dies_at=0.01, away_s=2.0)
    provider = CountingProvider(lambda _: CountingEnv(goal=1, call_delay_s=0.02))
    collector = a_collector(engine, provider, environment=short(trajectory_timeout_s=1.0))
    groups = await collector.collect([a_task(f"t{i}") for i in range(4)], a_request(n=2))
    rollouts = [rollout for group in groups for rollout in group]
    assert [rollout.trajectory.reward for rollout in rollouts] == [1.0] * 8
    assert {rollout.trajectory.stop_reason for rollout in rollouts} == {StopReason.DONE}
    assert {rollout.infra_errors for rollout in rollouts} == {()}
    assert {rollout.trajectory.num_infra_retries for rollout in rollouts} == {0}
    assert all(rollout.duration_s < engine.away_s for rollout in rollouts)
    assert {env.num_closed for env in provider.envs} == {1}
    sessions = set(engine.asked)
    assert {session.rpartition("/")[2] for session in sessions} == {"0", "0+1"}, (
        "an engine may yet draw for the session that was given up"
    )
    assert set(engine.released) == sessions
    seeds = {session: params.seed for _, params, session, _ in reversed(engine.requests)}
    again = [session for session in seeds if session.endswith("+1")]
    assert len(again) == 8
    assert all(seeds.get(each.removesuffix("+1"), seeds[each]) == seeds[each] for each in again)


async def test_a_turn_that_waited_for_a_restart_is_nobodys_time() -> None:
    """Together the turns take longer than a rollout may; each of them alone does not."""
    engine = Restarting(lambda turn, _: (ADD, DONE)[turn], delay_s=0.15, dies_at=0.01, away_s=0.6)
    environment = short(trajectory_timeout_s=0.8)
    collector = a_collector(engine, CountingProvider(), environment=environment)
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.reward == 1.0
    assert found.duration_s < 0.6
    assert len(set(engine.asked)) == 1, "it went on where it was"


async def test_the_environments_share_is_not_blamed_for_a_restart_either() -> None:
    engine = Restarting(lambda turn, _: (ADD, DONE)[turn], dies_at=0.25, away_s=0.8)
    provider = CountingProvider(lambda _: CountingEnv(goal=1, call_delay_s=0.3))
    collector = a_collector(engine, provider, environment=short())
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.reward == 1.0
    assert found.infra_errors == ()
    kinds = [each.kind for each in found.operations]
    assert kinds == ["reset", "call", "reset", "call", "verification"]


async def test_slow_sampling_of_an_engine_that_was_there_all_the_time_is_not_tried_again() -> None:
    engine = Restarting(lambda *_: DONE, delay_s=60.0)
    collector = a_collector(engine, CountingProvider(), environment=short())
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE
    assert found.trajectory.reward is None


async def test_an_engine_that_is_not_started_again_ends_the_attempt() -> None:
    engine = Restarting(lambda *_: DONE, dies_at=0.0, away_s=60.0, is_gone=True)
    collector = a_collector(engine, CountingProvider(), environment=short())
    with pytest.raises(EngineError, match="a worker process died"):
        await collector.collect([a_task()], a_request())


async def test_an_engine_that_is_there_and_draws_nothing_hangs() -> None:
    class Hanging(Restarting):
        async def score(self, token_ids: Sequence[int]) -> None:
            await asyncio.Event().wait()

    engine = Hanging(lambda *_: DONE, delay_s=60.0)
    collector = a_collector(engine, CountingProvider(), environment=short(turn_timeout_s=0.45))
    with pytest.raises(EngineError, match="the engine hangs"):
        await collector.collect([a_task()], a_request())


async def test_one_that_dies_while_it_is_asked_whether_it_hangs_is_no_hanging_one() -> None:
    class HangsThenDies(Restarting):
        async def _back(self) -> None:
            await asyncio.sleep(self.began + self.dies_at + self.away_s - time.monotonic())
            self._note()

    engine = HangsThenDies(lambda *_: DONE, dies_at=TRAJECTORY_S + 0.2, away_s=0.8)
    provider = CountingProvider(lambda _: CountingEnv(goal=0))
    collector = a_collector(engine, provider, environment=short())
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.reward == 1.0
    assert len(provider.envs) == 2
