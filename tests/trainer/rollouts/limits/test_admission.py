"""The wait for room in an engine's cache is nobody's time, and evaluations wait least."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

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
from trainer.engines.admission import CacheAdmission, CacheClaim
from trainer.rollouts.request import RolloutRequest

SHORT_S = 0.05


@dataclass
class Crowded(ScriptedEngine):
    """Draws at once, but has room for one rollout at a time."""

    admission: CacheAdmission = field(default_factory=lambda: CacheAdmission(1))

    async def admit(self, claim: CacheClaim) -> int:
        return await self.admission.admit(claim)

    def release(self, session: str) -> None:
        self.admission.release(session)


async def test_the_wait_for_room_in_the_cache_ends_no_rollout() -> None:
    """Eight rollouts of 0.7 x SHORT_S, one after the other, of which each has SHORT_S."""
    environment = EnvironmentSpec(
        call_timeout_s=0.8 * SHORT_S, turn_timeout_s=0.9 * SHORT_S, trajectory_timeout_s=SHORT_S
    )
    provider = CountingProvider(lambda _: CountingEnv(goal=1, call_delay_s=0.7 * SHORT_S))
    engine = Crowded(lambda turn, _: DONE if turn else ADD)
    collector = a_collector(engine, provider, environment=environment)
    began = asyncio.get_running_loop().time()
    ((*found,),) = await collector.collect([a_task()], a_request(n=8))
    took_s = asyncio.get_running_loop().time() - began
    assert [each.trajectory.outcome.score for each in found] == [1.0] * 8
    assert took_s > 8 * 0.7 * SHORT_S, "they did not wait"
    assert max(each.duration_s for each in found) < SHORT_S
    assert {"queue"} < {span.kind for each in found for span in each.spans}


async def test_an_evaluation_is_admitted_before_the_rollouts_of_later_steps() -> None:
    engine = Crowded(lambda turn, _: DONE if turn else ADD)
    provider = CountingProvider(lambda _: CountingEnv(goal=1, call_delay_s=SHORT_S))
    collector = a_collector(engine, provider)
    order: list[str] = []

    async def run(request: RolloutRequest) -> None:
        await collector.collect(
            [a_task()], request, on_completed=lambda _: order.append(request.split)
        )

    training = asyncio.create_task(run(a_request(n=3)))
    while not engine.requests:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(SHORT_S / 10)
    await asyncio.gather(training, run(replace(a_request(n=2), split="eval")))
    assert order == ["train", "eval", "eval", "train", "train"]
