"""The stream hands out whole batches, never one that is too old, and loses no task."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from tests.trainer.fixtures.scripted import a_request, a_task
from trainer.errors import CheckpointError, EngineError
from trainer.rollouts.groups.buffer import BufferOptions, RolloutBatch, RolloutBuffer
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.resampling import ResamplePolicy, RolloutGroup
from trainer.rollouts.groups.staleness_metrics import staleness_metrics
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Trajectory


@dataclass
class ManualRunner:
    """Rollouts that end when the test says so; each draws one token per version it sees."""

    version: int = 0
    auto: bool = False
    """End at once."""
    pending: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    started: list[tuple[str, int]] = field(default_factory=list)
    """Task and draw of every rollout started."""

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        self.started.append((task.key, request.step))
        first = self.version
        if not self.auto:
            self.pending[task.key] = asyncio.get_running_loop().create_future()
            await self.pending[task.key]
        return a_rollout(task, (first, self.version), sample_index)

    def finish(self, *keys: str) -> None:
        for key in keys:
            self.pending.pop(key).set_result(None)


def a_rollout(task: Task, versions: Sequence[int], sample_index: int = 0) -> Rollout:
    trajectory = Trajectory(
        task=task,
        token_ids=(1, *(2 for _ in versions)),
        action_mask=(False, *(True for _ in versions)),
        logprobs=(0.0, *(-1.0 for _ in versions)),
        weight_versions=(-1, *versions),
        prompt_length=1,
        turns=(),
        stop_reason=StopReason.DONE,
        outcome=Outcome(status=OutcomeStatus.GRADED, score=1.0),
        rollout_id=task.key,
        sample_index=sample_index,
    )
    return Rollout(trajectory=trajectory, num_turns=1, duration_s=0.0, infra_errors=())


def a_buffer(
    rollout_runner: ManualRunner,
    *,
    batch_size: int = 2,
    last_step: int = 100,
    max_staleness_steps: int = 0,
    resampling: ResamplePolicy = ResamplePolicy(),  # noqa: B008 - frozen
) -> RolloutBuffer:
    numbers = count()
    return RolloutBuffer(
        Collector(rollout_runner, max_concurrent_rollouts=1000),
        lambda: [a_task(f"t{next(numbers)}") for _ in range(batch_size)],
        lambda ordinal: a_request(step=ordinal),
        BufferOptions(
            batch_size=batch_size,
            last_step=last_step,
            max_staleness_steps=max_staleness_steps,
            resampling=resampling,
        ),
    )


def keys(taken: RolloutBatch) -> list[str]:
    return [group[0].trajectory.task.key for group in taken.groups]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_without_staleness_a_step_rolls_its_own_tasks_and_waits_for_all() -> None:
    rollout_runner = ManualRunner()
    buffer = a_buffer(rollout_runner)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    assert rollout_runner.started == [("t0", 1), ("t1", 1)]
    rollout_runner.finish("t1")
    await settle()
    assert not taking.done()
    rollout_runner.finish("t0")
    taken = await taking
    assert (keys(taken), taken.num_in_flight, taken.dropped) == (["t0", "t1"], 0, ())
    assert buffer.state() == {"num_draws": 1, "pending": []}


async def test_one_step_of_staleness_rolls_the_next_batch_while_this_one_is_learned() -> None:
    rollout_runner = ManualRunner()
    buffer = a_buffer(rollout_runner, max_staleness_steps=1)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    assert [key for key, _ in rollout_runner.started] == ["t0", "t1", "t2", "t3"]
    rollout_runner.finish("t0", "t1")
    assert keys(await taking) == ["t0", "t1"]
    rollout_runner.version = 1
    rollout_runner.finish("t2", "t3")
    second = await buffer.next_batch(2)
    assert staleness_metrics(second, version=1, bound=1) == {
        "async/num_groups_ahead": 2.0,
        "async/keep_rate": 1.0,
        "async/staleness_mean": 1.0,
        "async/staleness_max": 1.0,
        "async/staleness_min": 1.0,
        "async/staleness_ratio": 1.0,
        "async/staleness_violation_count": 0.0,
        "async/partial_ratio": 1.0,
    }
    await buffer.close()


def test_ages_are_counted_against_the_weights_that_learn_and_against_the_bound() -> None:
    first, second, third = (a_task(f"t{number}") for number in range(3))
    taken = RolloutBatch(
        groups=(
            (a_rollout(first, [3]), a_rollout(first, [2, 3])),
            (a_rollout(second, [0, 1, 1]), a_rollout(second, [])),
        ),
        dropped=((a_rollout(third, [3]),),),
        num_in_flight=5,
    )
    assert staleness_metrics(taken, version=3, bound=2) == {
        "async/num_groups_ahead": 5.0,
        "async/keep_rate": 2 / 3,
        "async/staleness_mean": 4 / 3,
        "async/staleness_max": 3.0,
        "async/staleness_min": 0.0,
        "async/staleness_ratio": 2 / 3,
        "async/staleness_violation_count": 1.0,
        "async/partial_ratio": 2 / 3,
    }


async def test_a_slow_group_is_learned_from_later_but_not_too_late() -> None:
    rollout_runner = ManualRunner()
    buffer = a_buffer(rollout_runner, max_staleness_steps=2)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    rollout_runner.finish("t1", "t2", "t3")
    assert keys(await taking) == ["t1", "t2"]
    taking = asyncio.create_task(buffer.next_batch(2))
    await settle()
    rollout_runner.finish("t4", "t5")
    await settle()
    assert not taking.done(), "t0 may be two versions old at most: step 2 has to wait for it"
    rollout_runner.finish("t0")
    assert keys(await taking) == ["t0", "t3"]
    await buffer.close()


@pytest.mark.parametrize("max_staleness_steps", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
async def test_whatever_the_order_batches_are_whole_in_time_and_complete(
    max_staleness_steps: int, seed: int
) -> None:
    rollout_runner, dice = ManualRunner(), random.Random(seed)
    buffer = a_buffer(rollout_runner, batch_size=3, max_staleness_steps=max_staleness_steps)
    seen: list[str] = []
    for step in range(1, 21):
        rollout_runner.version = step - 1
        taking = asyncio.create_task(buffer.next_batch(step))
        await settle()
        while not taking.done():
            rollout_runner.finish(dice.choice(sorted(rollout_runner.pending)))
            await settle()
        taken = await taking
        assert len(taken.groups) == 3
        ages = staleness_metrics(taken, version=step - 1, bound=max_staleness_steps)
        assert ages["async/staleness_max"] <= max_staleness_steps
        assert ages["async/staleness_violation_count"] == 0.0
        seen += keys(taken)
    assert len(set(seen)) == len(seen) == 60
    left = {key for _, key in buffer.state()["pending"]}
    assert sorted([*seen, *left]) == sorted({key for key, _ in rollout_runner.started} | left)
    await buffer.close()


@pytest.mark.parametrize("max_staleness_steps", [0, 1, 2, 5, 8])
async def test_nothing_is_rolled_out_for_a_step_after_the_last(max_staleness_steps: int) -> None:
    rollout_runner = ManualRunner(auto=True)
    buffer = a_buffer(rollout_runner, last_step=3, max_staleness_steps=max_staleness_steps)
    taken = [await buffer.next_batch(step) for step in (1, 2, 3)]
    await settle()
    assert len(rollout_runner.started) == 3 * 2 == sum(len(each.groups) for each in taken)
    assert taken[-1].num_in_flight == 0
    assert buffer.state() == {"num_draws": 3, "pending": []}


def not_among(*poor: str) -> Callable[[RolloutGroup], bool]:
    return lambda group: group[0].trajectory.task.key not in poor


def dropped(taken: RolloutBatch) -> list[str]:
    return [group[0].trajectory.task.key for group in taken.dropped]


async def test_a_group_that_is_not_kept_is_followed_by_another_task() -> None:
    resampling = ResamplePolicy(keeps=not_among("t0", "t2"), max_draws=3)
    buffer = a_buffer(ManualRunner(auto=True), resampling=resampling)
    taken = await buffer.next_batch(1)
    assert keys(taken) == ["t3", "t1"]
    assert dropped(taken) == ["t0", "t2"]
    assert buffer.state() == {"num_draws": 2, "pending": []}


async def test_the_last_draw_of_a_slot_is_kept_as_it_is() -> None:
    resampling = ResamplePolicy(keeps=lambda _: False, max_draws=2)
    taken = await a_buffer(ManualRunner(auto=True), resampling=resampling).next_batch(1)
    assert len(taken.groups) == 2
    assert len(taken.dropped) == 2


async def test_a_batch_that_is_not_accepted_is_drawn_again_as_a_whole() -> None:
    kept = not_among("t0", "t1", "t2")
    resampling = ResamplePolicy(accepts=lambda batch: all(map(kept, batch)), max_draws=5)
    buffer = a_buffer(ManualRunner(auto=True), resampling=resampling)
    taken = await buffer.next_batch(1)
    assert (keys(taken), dropped(taken)) == (["t4", "t5"], ["t0", "t1", "t2", "t3"])
    assert keys(await buffer.next_batch(2)) == ["t6", "t7"]
    assert buffer.state() == {"num_draws": 4, "pending": []}


async def test_the_last_batch_of_a_step_is_taken_as_it_is() -> None:
    resampling = ResamplePolicy(accepts=lambda _: False, max_draws=3)
    taken = await a_buffer(ManualRunner(auto=True), resampling=resampling).next_batch(1)
    assert (keys(taken), len(taken.dropped)) == (["t4", "t5"], 4)


async def test_batches_drawn_again_ahead_of_the_learner_leave_no_task_out() -> None:
    """The first two batches come to nothing; what later steps had begun takes their place."""
    poor, rollout_runner = not_among("t0", "t1", "t2", "t3"), ManualRunner(auto=True)
    resampling = ResamplePolicy(accepts=lambda batch: all(map(poor, batch)), max_draws=5)
    buffer = a_buffer(rollout_runner, max_staleness_steps=2, resampling=resampling)
    seen = []
    for step in (1, 2, 3):
        rollout_runner.version = step - 1
        taken = await buffer.next_batch(step)
        assert len(taken.groups) == 2
        ages = staleness_metrics(taken, version=step - 1, bound=2)
        assert ages["async/staleness_max"] <= 2
        seen += keys(taken) + dropped(taken)
    assert len(set(seen)) == len(seen) == 10
    left = [key for _, key in buffer.state()["pending"]]  # type: ignore[union-attr, misc]
    assert sorted(seen + left) == sorted({key for key, _ in rollout_runner.started})
    await buffer.close()


async def test_what_a_slot_has_dropped_is_rolled_out_again_after_a_crash() -> None:
    rollout_runner = ManualRunner()
    resampling = ResamplePolicy(keeps=not_among("t2"), max_draws=3)
    buffer = a_buffer(rollout_runner, max_staleness_steps=1, resampling=resampling)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    rollout_runner.finish("t0", "t1", "t2")
    await taking
    assert rollout_runner.started[-1] == ("t4", 3)
    assert buffer.state() == {
        "num_draws": 3,
        "pending": [[2, "t2"], [3, "t4"], [2, "t3"], [3, "t5"]],
    }
    await buffer.close()


async def test_a_restored_stream_rolls_what_was_pending_with_the_same_draws() -> None:
    rollout_runner = ManualRunner()
    buffer = a_buffer(rollout_runner, max_staleness_steps=2)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    rollout_runner.finish("t0", "t3")
    await taking
    state = buffer.state()
    assert state == {"num_draws": 2, "pending": [[1, "t1"], [2, "t2"]]}
    await buffer.close()
    again = ManualRunner()
    restored = a_buffer(again, max_staleness_steps=2)
    restored.restore(1, state, {key: a_task(key) for key in ("t1", "t2")})
    taking = asyncio.create_task(restored.next_batch(2))
    await settle()
    assert again.started[:2] == [("t1", 1), ("t2", 2)]
    assert {draw for _, draw in again.started[2:]} == {3}
    taking.cancel()
    await restored.close()


@pytest.mark.parametrize(
    "state", [{}, {"num_draws": 1, "pending": [[1, "gone"]]}, {"num_draws": 1, "pending": [7]}]
)
async def test_a_state_that_does_not_fit_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        a_buffer(ManualRunner()).restore(1, state, {"t0": a_task("t0")})  # type: ignore[arg-type]


async def test_an_engine_that_fails_behind_a_later_step_fails_this_one() -> None:
    rollout_runner = ManualRunner()
    buffer = a_buffer(rollout_runner, max_staleness_steps=1)
    taking = asyncio.create_task(buffer.next_batch(1))
    await settle()
    rollout_runner.pending["t3"].set_exception(EngineError("no memory"))
    with pytest.raises(EngineError):
        await taking
    assert buffer.state()["pending"] == [[1, "t0"], [1, "t1"], [2, "t2"], [2, "t3"]]
    await buffer.close()
