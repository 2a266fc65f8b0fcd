"""Whole short runs whose rollouts go on while the policy is trained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.protocol.events import StepCompleted
from hillclimb.protocol.rundir import checkpoint_name, run_key
from tests.trainer.fixtures.scripted import CountingEnv
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.algo.batch import BatchPlan, build_batch, score_groups
from trainer.attempt.stop_signal import StopRequested
from trainer.jobs.train.checkpoints import find_latest, read_saved
from trainer.rollouts.groups.collector import as_groups
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.training_request import training_request, training_temperatures

STALE = {"total_steps": 6, "max_staleness_steps": 2}


@dataclass(slots=True)
class SlowStart(CountingEnv):
    """Takes its time to be ready; `yields` is how often it lets others go first."""

    yields: int = 0

    async def reset(self) -> tuple[ToolSpec, ...]:
        for _ in range(self.yields):
            await asyncio.sleep(0)
        return await CountingEnv.reset(self)


@dataclass(slots=True)
class UnequallySlow:
    """Every fifth environment is much slower than the others."""

    env_keys: tuple[str, ...] = ("booking", "github")
    num_made: int = 0
    on_made: Callable[[int], None] = lambda _: None

    def make(self, _: Task) -> SlowStart:
        self.num_made += 1
        self.on_made(self.num_made)
        return SlowStart(goal=0, yields=3000 if self.num_made % 5 == 0 else 0)


async def test_rollouts_go_on_over_updates_and_none_is_too_old(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, schedule=STALE, eval=UNEVALUATED)
    await run.train(provider=UnequallySlow())
    metrics = [event.metrics for event in run.events(StepCompleted)]
    assert [event.step for event in run.events(StepCompleted)] == list(range(1, 7))
    ages = [each["async/staleness_max"] for each in metrics]
    assert max(ages) <= 2
    assert max(ages) >= 1, "nothing was rolled out ahead"
    gaps = [each.get("policy/rollout_train_logprobs_abs_diff_max") for each in metrics]
    assert max(gap for gap in gaps if gap is not None) < 1e-3, "of older weights' tokens"
    assert [each["async/num_groups_ahead"] >= 4 for each in metrics] == [True] * 5 + [False]
    assert metrics[-1]["async/num_groups_ahead"] == 0, "no step follows that could use them"
    rows = [row for event in run.events(StepCompleted) for row in event.outcomes]
    assert len({row.rollout_id for row in rows}) == len(rows) == 6 * 4 * 4


@pytest.mark.invariant("a stopped asynchronous run resumes with the tasks it had drawn")
async def test_a_stopped_asynchronous_run_goes_on_with_the_tasks_it_had_drawn(
    tmp_path: Path,
) -> None:
    run, provider = ShortRun(tmp_path, schedule=STALE, eval=UNEVALUATED), UnequallySlow()
    provider.on_made = lambda number: run.stop.request_stop() if number == 76 else None
    with pytest.raises(StopRequested):
        await run.finish(run.build(provider=provider))
    done = len(run.events(StepCompleted))
    assert 0 < done < 6
    key = find_latest(run.store, run.run_id)
    assert key is not None
    buffer = read_saved(run.store, key).manifest.buffer
    pending = [task_key for _, task_key in buffer["pending"]]
    assert len(pending) >= 4

    await run.train(2, resume_from=key, provider=UnequallySlow())
    steps = [*run.events(StepCompleted), *run.events(StepCompleted, 2)]
    assert [event.step for event in steps] == list(range(1, 7))
    drawn = [row.task_key for event in steps for row in event.outcomes if row.sample_index == 0]
    assert len(set(drawn)) == len(drawn) == 24, "no task is lost and none comes twice"
    assert set(pending[:4]) <= set(drawn[4 * done : 4 * (done + 3)])


@pytest.fixture
def _torch_as_it_was() -> Iterator[None]:
    """A deterministic run sets up its whole process, which here is that of other tests too."""
    threads, mode = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=mode)


@pytest.mark.usefixtures("_torch_as_it_was")
async def test_without_staleness_the_stream_is_the_textbook_loop_bit_for_bit(
    tmp_path: Path,
) -> None:
    """The textbook: draw a batch, roll all of it out, learn, hand over the weights; four times.

    Both in deterministic mode, so that a difference is one of the algorithm.
    """
    run = ShortRun(tmp_path / "run", deterministic=True, eval=UNEVALUATED)
    await run.train()
    other = ShortRun(tmp_path / "book", deterministic=True, eval=UNEVALUATED)
    trainer = other.build()
    parts, spec = trainer._parts, other.spec
    await parts.workers.weights.sync()
    for step in range(1, spec.schedule.total_steps + 1):
        tasks = parts.sampler.next_step()
        groups = await parts.rollout_service.collector.collect(tasks, training_request(spec, step))
        seed = derive_seed(spec.schedule.seed, "batch", step)
        plan = BatchPlan(
            mini_batch_size=spec.schedule.mini_batch_size,
            temperatures=training_temperatures(spec),
            seed=seed,
        )
        scored = score_groups(as_groups(groups), spec.algorithm, seed=seed)
        await parts.workers.learner.step(build_batch(scored, spec.algorithm, plan))
        await parts.workers.weights.sync()
    parts.workers.learner.begin_save(tmp_path / "saved")()
    await other.finish_without_training(trainer)
    stored = run.store.get(run_key(run.run_id, checkpoint_name(4, 1)) + "/policy/model.safetensors")
    assert (tmp_path / "saved" / "policy" / "model.safetensors").read_bytes() == stored
