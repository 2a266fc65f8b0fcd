"""Whole short runs that draw prompts again whose rollouts have nothing to teach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from hillclimb.environment.task import Task
from hillclimb.protocol.events import RunWarning, StepCompleted
from tests.trainer.fixtures.scripted import CountingEnv
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.attempt.stop_signal import StopRequested
from trainer.jobs.train.checkpoints import find_latest

N = 4
"""Rollouts per prompt."""


class Contrast:
    """Saying that nothing is to do solves about one in `one_in` tasks, and none of the others."""

    env_keys = ("booking", "github")

    def __init__(self, one_in: int = 1) -> None:
        self.one_in = one_in
        self.num_made = 0
        self.on_made: Callable[[int], None] = lambda _: None

    def make(self, task: Task) -> CountingEnv:
        self.num_made += 1
        self.on_made(self.num_made)
        return CountingEnv(goal=7 if crc32(task.key.encode()) % self.one_in else 0)


def a_run(
    root: Path, *, steps: int = 3, staleness: int = 0, num_tasks: int = 300, **rule: Any
) -> ShortRun:
    """A run whose policy hardly changes, so that it goes on saying different things."""
    return ShortRun(
        root,
        data={"train_tasks_per_env": num_tasks},
        algorithm={"dynamic_sampling": rule or None},
        eval=UNEVALUATED,
        schedule={"total_steps": steps, "max_staleness_steps": staleness},
        optimizer={"lr": 1e-4},
        environment={"max_turns": 1},
    )


async def steps_of(run: ShortRun, contrast: Contrast) -> list[StepCompleted]:
    await run.train(provider=contrast)
    return run.events(StepCompleted)


def num_learned(event: StepCompleted) -> float:
    """Groups in the loss: in each, all rollouts are better or worse than the mean."""
    return event.metrics.get("policy/num_sequences", 0.0) / N


@pytest.mark.invariant("dynamic sampling fills every step of a run with groups that have signal")
async def test_filter_fills_every_step_with_groups_that_teach(tmp_path: Path) -> None:
    plain = await steps_of(a_run(tmp_path / "plain"), Contrast())
    assert min(map(num_learned, plain)) < 4
    contrast = Contrast()
    run = a_run(tmp_path / "filter", type="filter")
    for event in await steps_of(run, contrast):
        assert num_learned(event) == 4
        sampled = event.metrics["dynamic_sampling/num_sampled_prompts"]
        assert sampled > 4
        assert event.metrics["dynamic_sampling/keep_rate"] == 4 / sampled
        # What was dropped is in the rows: the step's pass rate is that of all prompts drawn.
        assert len(event.outcomes) == N * sampled
        assert event.metrics["reward/signal_ratio"] == 4 / sampled
    assert run.events(RunWarning) == []


async def test_a_task_drawn_again_in_a_step_is_another_group(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=1, num_tasks=4, type="filter", max_sample_batches=8)
    (event,) = await steps_of(run, Contrast(3))
    num_groups = len(event.outcomes) / N
    assert num_groups > len({row.task_key for row in event.outcomes})
    keep_rate = event.metrics["dynamic_sampling/keep_rate"]
    assert 0.0 < keep_rate < 1.0
    assert event.metrics["reward/signal_ratio"] == keep_rate
    assert event.metrics["reward/num_zero_variance_filtered"] == num_groups * (1.0 - keep_rate)


async def test_filter_makes_do_after_its_last_draw_and_says_so(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=1, type="filter", max_sample_batches=2)
    (event,) = await steps_of(run, Contrast(1000))
    assert num_learned(event) == 0
    assert event.metrics["dynamic_sampling/num_sampled_prompts"] == 8
    warnings = {each.code: each.message for each in run.events(RunWarning)}
    assert "drew 2 prompts" in warnings["dynamic_sampling_gave_up"]
    assert "scored alike" in warnings["no_signal"]


async def test_replace_copies_groups_that_teach_and_throws_batches_away(tmp_path: Path) -> None:
    run = a_run(tmp_path, type="replace", min_replace_ratio=0.3)
    for event in await steps_of(run, Contrast()):
        assert num_learned(event) == 4
        sampled = event.metrics["dynamic_sampling/num_sampled_prompts"]
        assert sampled % 4 == 0
        assert len(event.outcomes) == len({row.rollout_id for row in event.outcomes}) == N * sampled
        assert event.metrics["dynamic_sampling/num_replaced_prompts"] <= 2
    assert run.events(RunWarning) == []


@pytest.mark.long
async def test_replace_asks_for_the_share_that_is_set(tmp_path: Path) -> None:
    async def num_sampled(ratio: float) -> float:
        run = a_run(tmp_path / str(ratio), type="replace", min_replace_ratio=ratio)
        events = await steps_of(run, Contrast())
        return sum(each.metrics["dynamic_sampling/num_sampled_prompts"] for each in events)

    assert await num_sampled(0.0) < await num_sampled(0.6)


async def test_replace_makes_do_after_its_last_batch_and_says_so(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=1, type="replace", max_sample_batches=3)
    (event,) = await steps_of(run, Contrast(1000))
    assert event.metrics["dynamic_sampling/num_sampled_prompts"] == 12
    codes = [each.code for each in run.events(RunWarning)]
    assert codes == ["dynamic_sampling_gave_up", "no_signal"]


@pytest.mark.invariant("dynamic sampling draws ahead of the learner within the staleness bound")
@pytest.mark.parametrize("kind", ["filter", pytest.param("replace", marks=pytest.mark.long)])
async def test_prompts_are_drawn_again_ahead_of_the_learner(tmp_path: Path, kind: str) -> None:
    run = a_run(tmp_path, steps=5, staleness=2, type=kind)
    events = await steps_of(run, Contrast(2))
    assert len(events) == 5
    assert all(num_learned(event) == 4 for event in events)
    ages = [event.metrics["async/staleness_max"] for event in events]
    assert 1 <= max(ages) <= 2
    rows = [row.rollout_id for event in events for row in event.outcomes]
    assert len(rows) == len(set(rows)) > 5 * 4 * N


@pytest.mark.long
@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("kind", ["filter", "replace"])
async def test_a_stopped_run_goes_on_with_the_prompts_that_no_step_has_reported(
    tmp_path: Path, kind: str, staleness: int
) -> None:
    run = a_run(tmp_path, steps=5, staleness=staleness, type=kind)
    contrast = Contrast(2)
    contrast.on_made = lambda number: run.stop.request_stop() if number == 140 else None
    with pytest.raises(StopRequested):
        await run.finish(run.build(provider=contrast))
    done = len(run.events(StepCompleted))
    assert 0 < done < 5
    await run.train(2, resume_from=find_latest(run.store, run.run_id), provider=Contrast(2))
    events = [*run.events(StepCompleted), *run.events(StepCompleted, 2)]
    assert [event.step for event in events] == [1, 2, 3, 4, 5]
    drawn = [row.task_key for event in events for row in event.outcomes if not row.sample_index]
    assert len(drawn) == len(set(drawn)), "none comes twice in an epoch"
    if not staleness:
        whole = a_run(tmp_path / "whole", steps=5, type=kind)
        expected = await steps_of(whole, Contrast(2))
        assert drawn == [r.task_key for e in expected for r in e.outcomes if not r.sample_index]
