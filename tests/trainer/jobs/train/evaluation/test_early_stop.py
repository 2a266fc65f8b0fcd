"""Evaluations that end once their verdict stands, in whole runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.environment.base import Grade
from hillclimb.environment.task import Task
from hillclimb.protocol.events import EarlyStop, EvalCompleted, PhaseStarted, RunWarning
from hillclimb.stats.pass_rate import count_tasks
from hillclimb.stats.verdicts.compare import compare, shared_tasks
from hillclimb.stats.verdicts.verdict import Selection, Verdict
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider, a_task
from tests.trainer.fixtures.short_run import ShortRun
from trainer.attempt.sinks.segments import Segments
from trainer.jobs.train.checkpoints import find_latest
from trainer.jobs.train.evals.early_stop import random_order
from trainer.rollouts.records.dump import read_trajectories

NUM_TASKS = 24
ENDS_EARLY: dict[str, dict[str, Any]] = {
    "data": {"eval_tasks_per_env": NUM_TASKS // 2},
    "environment": {"max_turns": 1, "max_concurrent_rollouts": 4, "grade_unfinished": "verifier"},
    "schedule": {"total_steps": 2, "train_batch_size": 2, "mini_batch_size": 2},
    "checkpoints": {"interval": 1},
    "eval": {"interval": 1, "decodings": [{"name": "sampled"}], "stop_when_decided": True},
}


@dataclass(slots=True)
class Worth(CountingEnv):
    """An episode of a fixed worth."""

    worth: float = 0.0

    async def score(self) -> Grade:
        return Grade(score=self.worth)


@dataclass(slots=True)
class Improving(CountingProvider):
    """Worlds that nobody solves at first, and everybody from the `since`-th episode on."""

    since: int = 2
    num_made: Counter[str] = field(default_factory=Counter)

    def make(self, task: Task) -> CountingEnv:
        self.num_made[task.key] += 1
        return Worth(goal=0, worth=float(self.num_made[task.key] >= self.since))


def a_run(root: Path, **sections: dict[str, Any]) -> ShortRun:
    merged = {name: {**keys, **sections.get(name, {})} for name, keys in ENDS_EARLY.items()}
    return ShortRun(root, **merged)


@pytest.fixture(scope="module")
def improving(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShortRun, Improving]:
    """A complete run, and its worlds: further attempts go on in them."""
    run, provider = a_run(tmp_path_factory.mktemp("improving")), Improving()
    asyncio.run(run.train(provider=provider))
    return run, provider


def step_1(run: ShortRun) -> str:
    """The key of the run's first checkpoint."""
    key = find_latest(run.store, run.run_id)
    assert key is not None
    return key.rpartition("/global_step_")[0] + "/global_step_1/attempt-1"


def test_an_evaluation_ends_with_its_verdict_and_what_is_left_was_not_needed(
    improving: tuple[ShortRun, Improving], tmp_path: Path
) -> None:
    """Step 1 may be chosen from two, so the word needs an e-value of 80: nine gains have 74."""
    run, _ = improving
    first, second, last = run.events(EvalCompleted)
    assert first.stopped_early is None
    assert len(first.outcomes) == NUM_TASKS
    for event in (second, last):
        stop = event.stopped_early
        assert isinstance(stop, EarlyStop)
        assert (stop.cause, stop.verdict, stop.decided_at) == ("decided", Verdict.IMPROVED, 10)
        assert (stop.planned, stop.baseline_step) == (NUM_TASKS, 0)
        assert 0 <= stop.num_discarded <= 5
        assert len(event.outcomes) == 10
        assert event.metrics["eval/all/coverage"] == 1.0
        assert event.metrics["eval/all/pass_at_1"] == 1.0
    announced = [e.num_rollouts for e in run.events(PhaseStarted) if e.phase == "eval"]
    assert announced == [NUM_TASKS] * 3
    name = f"runs/{run.run_id}/attempt-1/{second.outcomes[0].trajectory}"
    run.store.get_file(name, tmp_path / "t.gz")
    assert len(read_trajectories(tmp_path / "t.gz")) == 10


def test_every_evaluation_takes_the_tasks_in_one_random_order(
    improving: tuple[ShortRun, Improving],
) -> None:
    run, _ = improving
    orders = [[row.task_key for row in e.outcomes] for e in run.events(EvalCompleted)]
    assert orders[1] == orders[2] == orders[0][:10]
    assert len({key.split("/")[0] for key in orders[1]}) == 2
    tasks = [a_task(f"t{i}") for i in range(50)]
    assert random_order(tasks, 1) == random_order(tasks, 1) != random_order(tasks, 2)
    assert sorted(task.key for task in random_order(tasks, 1)) == sorted(t.key for t in tasks)


def test_the_stored_word_is_the_one_that_the_stored_rows_give(
    improving: tuple[ShortRun, Improving],
) -> None:
    run, _ = improving
    first, second, _ = run.events(EvalCompleted)
    before, after = (
        count_tasks(event.outcomes, pass_threshold=event.pass_threshold)
        for event in (first, second)
    )
    table = compare(
        *shared_tasks(before, after), selection=Selection(num_candidates=2, is_complete=False)
    )
    assert table.overall.verdict == second.stopped_early.verdict == Verdict.IMPROVED


async def test_an_evaluation_without_a_change_is_complete(tmp_path: Path) -> None:
    run = a_run(tmp_path, schedule={"total_steps": 1})
    await run.train(provider=Improving(since=100))
    assert [e.stopped_early for e in run.events(EvalCompleted)] == [None, None]
    assert [len(e.outcomes) for e in run.events(EvalCompleted)] == [NUM_TASKS] * 2


async def test_a_named_baseline_is_compared_with_and_those_up_to_it_are_complete(
    tmp_path: Path,
) -> None:
    """Solved from the third evaluation on: the second one, of step 1, is the baseline."""
    run = a_run(tmp_path, eval={**ENDS_EARLY["eval"], "stop_when_decided": {"baseline_step": 1}})
    await run.train(provider=Improving(since=3))
    *complete, last = run.events(EvalCompleted)
    assert [e.stopped_early for e in complete] == [None, None]
    assert (last.step, last.stopped_early.baseline_step) == (2, 1)


async def test_a_resumed_attempt_finds_the_baseline_that_an_earlier_one_stored(
    improving: tuple[ShortRun, Improving],
) -> None:
    run, provider = improving
    assert Segments(run.store, run.dir(1), interval_s=60.0).close(10.0)
    await run.train(2, resume_from=step_1(run), provider=provider)
    (last,) = run.events(EvalCompleted, attempt=2)
    assert (last.step, last.stopped_early.decided_at) == (2, 10)
    assert last.stopped_early.baseline_step == 0


async def test_without_the_stored_evaluations_a_resumed_attempt_evaluates_all(
    improving: tuple[ShortRun, Improving], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object, **__: object) -> None:
        raise StoreError("down")

    run, provider = improving
    monkeypatch.setattr("trainer.jobs.train.wiring.stored_evals", unavailable)
    await run.train(3, resume_from=step_1(run), provider=provider)
    (last,) = run.events(EvalCompleted, attempt=3)
    assert (last.stopped_early, len(last.outcomes)) == (None, NUM_TASKS)
    codes = [warning.code for warning in run.events(RunWarning, attempt=3)]
    assert codes.count("eval_history_missing") == 1
