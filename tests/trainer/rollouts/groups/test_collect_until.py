"""Requests that end early: what begins, what is waited for, and what is discarded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from tests.trainer.fixtures.scripted import a_request, a_task
from trainer.errors import EngineError
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.records.skipped import rollout_id
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.transcript import RolloutIdentity, Transcript


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass(slots=True)
class HeldRunner:
    """Rollouts that end when they are told to."""

    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ends: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        name = f"{task.key}.{sample_index}"
        self.begun.append(name)
        self.ends[name] = asyncio.get_running_loop().create_future()
        try:
            await self.ends[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        identity = RolloutIdentity(
            rollout_id=rollout_id(1, request, task, sample_index),
            sample_index=sample_index,
            num_infra_retries=0,
        )
        outcome = Outcome(status=OutcomeStatus.GRADED, score=1.0)
        return Rollout(
            trajectory=Transcript().trajectory(task, outcome, StopReason.DONE, identity),
            num_turns=1,
            duration_s=0.0,
            infra_errors=(),
        )

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set_result(None)
            for _ in range(5):
                await turns()


@dataclass(slots=True)
class Enough:
    """Enough is a number of first tasks, or whatever the test says."""

    number: int
    foresees: Callable[[int], bool] = lambda _: False
    added: dict[int, list[str]] = field(default_factory=dict)

    @property
    def num_enough(self) -> int | None:
        return self.number if all(i in self.added for i in range(self.number)) else None

    def add(self, index: int, rollouts: Sequence[Rollout]) -> None:
        self.added[index] = [each.trajectory.rollout_id for each in rollouts]

    def is_foreseeable(self, num_begun: int) -> bool:
        return self.foresees(num_begun)


TASKS = [a_task(f"t{i}") for i in range(6)]


async def test_rollouts_begin_in_order_and_the_rule_hears_of_whole_tasks_as_they_end() -> None:
    runner, rule = HeldRunner(), Enough(2)
    collector = Collector(runner, max_concurrent_rollouts=4)
    collecting = asyncio.create_task(collector.collect_until(TASKS, a_request(n=2), rule))
    await turns()
    assert runner.begun == ["t0.0", "t0.1", "t1.0", "t1.1"]
    await runner.end("t1.1", "t1.0")
    assert list(rule.added) == [1]
    assert runner.begun[4:] == ["t2.0", "t2.1"]
    await runner.end("t0.0")
    assert list(rule.added) == [1]
    await runner.end("t0.1")
    first = await collecting
    assert rule.added == {
        i: [f"1/1/train/train/t{i}/{sample}" for sample in range(2)] for i in range(2)
    }
    assert [[r.trajectory.rollout_id for r in group] for group in first.groups] == [
        rule.added[0],
        rule.added[1],
    ]


async def test_what_is_not_needed_is_cancelled_closed_and_counted() -> None:
    """t3 had ended, t2 and t4 were in flight, t5 had not begun."""
    runner = HeldRunner()
    collector = Collector(runner, max_concurrent_rollouts=4)
    collecting = asyncio.create_task(collector.collect_until(TASKS, a_request(), Enough(2)))
    await turns()
    await runner.end("t3.0", "t1.0")
    assert runner.begun == ["t0.0", "t1.0", "t2.0", "t3.0", "t4.0", "t5.0"]
    runner.ends["t0.0"].set_result(None)
    first = await collecting
    assert (len(first.groups), first.num_discarded) == (2, 4)
    assert sorted(runner.cancelled) == ["t2.0", "t4.0", "t5.0"]


async def test_nothing_begins_while_the_rule_foresees_its_decision() -> None:
    seen: list[int] = []

    def foresees(num_begun: int) -> bool:
        seen.append(num_begun)
        return len(seen) == 1

    runner = HeldRunner()
    collector = Collector(runner, max_concurrent_rollouts=3)
    rule = Enough(6, foresees)
    collecting = asyncio.create_task(collector.collect_until(TASKS, a_request(), rule))
    await turns()
    await runner.end("t1.0")
    assert (runner.begun, seen) == (["t0.0", "t1.0", "t2.0"], [3])
    # Another task ends, and now it does not.
    await runner.end("t2.0")
    assert runner.begun == ["t0.0", "t1.0", "t2.0", "t3.0", "t4.0"]
    await runner.end("t0.0", "t3.0", "t4.0", "t5.0")
    assert len((await collecting).groups) == 6


async def test_all_tasks_are_returned_if_there_are_never_enough() -> None:
    runner = HeldRunner()
    collector = Collector(runner, max_concurrent_rollouts=6)
    collecting = asyncio.create_task(collector.collect_until(TASKS, a_request(), Enough(7)))
    await turns()
    await runner.end(*[f"t{i}.0" for i in (5, 0, 3, 1, 4, 2)])
    first = await collecting
    assert (len(first.groups), first.num_discarded) == (6, 0)


async def test_a_failing_engine_ends_all_at_once_whatever_is_still_waited_for() -> None:
    runner = HeldRunner()
    collector = Collector(runner, max_concurrent_rollouts=3)
    collecting = asyncio.create_task(collector.collect_until(TASKS, a_request(), Enough(6)))
    await turns()
    runner.ends["t2.0"].set_exception(EngineError("down"))
    with pytest.raises(EngineError):
        await collecting
    assert {"t0.0", "t1.0"} <= set(runner.cancelled) == set(runner.begun) - {"t2.0"}
