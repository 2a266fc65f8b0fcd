"""Evaluations with a budget, and runs that only evaluate."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import trainer.jobs.train.evals.evaluation as evaluation_module
import trainer.rollouts.request as request_module
from hillclimb.protocol.events import (
    CheckpointSaved,
    EvalCompleted,
    PhaseStarted,
    RunWarning,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.stats.pass_rate import pass_table
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider, a_task
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.engines.torch.engine import TorchEngine
from trainer.errors import CheckpointError
from trainer.jobs.train.checkpoints import complete_checkpoints, find_latest
from trainer.jobs.train.evals.evaluation import interleave_environments
from trainer.learners.rank import LearnerRank
from trainer.rollouts.records.dump import read_trajectories
from trainer.types import Sample, SamplingParams

BUDGET_MINUTES = 10.0
ONE_AT_A_TIME: dict[str, dict[str, Any]] = {
    "environment": {"max_turns": 1, "max_concurrent_rollouts": 1},
    "schedule": {"total_steps": 1},
    "eval": {
        "before_training": True,
        "interval": 0,
        "budget_minutes": BUDGET_MINUTES,
        "decodings": [{"name": "sampled"}],
    },
}


class _Clock:
    """Time that leaps past every budget when it is told to."""

    def __init__(self) -> None:
        self.leap_s = 0.0

    def time(self) -> float:
        return time.time() + self.leap_s

    def perf_counter(self) -> float:
        return time.perf_counter()


async def cut_off(root: Path, monkeypatch: pytest.MonkeyPatch, *, after: int) -> ShortRun:
    """A run whose first evaluation has time for `after` of its 8 rollouts."""
    clock = _Clock()
    monkeypatch.setattr(request_module, "time", clock)

    def env(number: int) -> CountingEnv:
        clock.leap_s = 3600.0 if number == after - 1 else 0.0
        return CountingEnv(goal=0)

    run = ShortRun(root, **ONE_AT_A_TIME)
    await run.train(provider=CountingProvider(env))
    return run


async def test_an_evaluation_out_of_time_has_outcomes_missing_and_no_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await cut_off(tmp_path, monkeypatch, after=5)
    first = run.events(EvalCompleted)[0]
    stops = Counter(row.stop_reason is StopReason.NOT_STARTED for row in first.outcomes)
    assert stops == {False: 5, True: 3}
    begun = [row for row in first.outcomes if row.stop_reason is not StopReason.NOT_STARTED]
    missing = [row for row in first.outcomes if row.stop_reason is StopReason.NOT_STARTED]
    assert {row.status for row in missing} == {OutcomeStatus.UNGRADED}
    assert {row.score for row in missing} == {None}
    assert Counter(row.env_key for row in begun) == {"booking": 3, "github": 2}

    passed = sum(row.score == 1.0 for row in begun)
    assert first.metrics["eval/all/coverage"] == 5 / 8
    assert first.metrics["eval/all/pass_at_1"] == passed / 5
    assert first.metrics["eval/all/environment/num_episodes"] == 5.0
    assert first.metrics["eval/all/environment/ungraded_rate"] == 0.0
    rate = pass_table(first.outcomes, pass_threshold=1.0, k=1).overall
    assert (rate.bound_if_failed, rate.bound_if_passed) == (passed / 8, (passed + 3) / 8)

    (warning,) = [e for e in run.events(RunWarning) if e.code == "eval_budget"]
    assert "3 of 8 rollouts were not started and have no outcome" in warning.message
    run.store.get_file(f"runs/{run.run_id}/attempt-1/{missing[0].trajectory}", tmp_path / "t.gz")
    assert len(read_trajectories(tmp_path / "t.gz")) == 8


async def test_a_late_end_of_one_decoding_takes_no_time_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rollout of the first one ends after the time of both."""
    clock = _Clock()
    monkeypatch.setattr(request_module, "time", clock)
    monkeypatch.setattr(evaluation_module, "time", clock)

    def env(number: int) -> CountingEnv:
        clock.leap_s = 0.0 if number < 7 else 3600.0
        return CountingEnv(goal=0)

    decodings = [{"name": "sampled"}, {"name": "greedy", "temperature": 0.0}]
    both = {**ONE_AT_A_TIME, "eval": {**ONE_AT_A_TIME["eval"], "decodings": decodings}}
    run = ShortRun(tmp_path, **both)
    await run.train(provider=CountingProvider(env))
    found = [(e.decoding, e.metrics["eval/all/coverage"]) for e in run.events(EvalCompleted)[:2]]
    assert found == [("sampled", 1.0), ("greedy", 1.0)]


async def test_an_evaluation_with_no_time_at_all_is_no_outage(tmp_path: Path) -> None:
    """Though none of its rollouts has a grade."""
    sections = {**ONE_AT_A_TIME, "eval": {**ONE_AT_A_TIME["eval"], "budget_minutes": 1e-9}}
    run = ShortRun(tmp_path, **sections)
    await run.train()
    assert [event.metrics["eval/all/coverage"] for event in run.events(EvalCompleted)] == [0.0, 0.0]
    assert len(run.events(StepCompleted)) == 1


async def test_an_evaluation_in_time_misses_nothing(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, **ONE_AT_A_TIME)
    await run.train()
    assert [event.metrics["eval/all/coverage"] for event in run.events(EvalCompleted)] == [1.0, 1.0]
    assert not [event for event in run.events(RunWarning) if event.code == "eval_budget"]


async def test_each_decoding_draws_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decodings = [
        {"name": "sampled", "temperature": 0.9, "top_p": 0.95, "n_samples_per_prompt": 2},
        {"name": "greedy", "temperature": 0.0},
    ]
    seen: list[SamplingParams] = []
    sample = TorchEngine.sample

    async def noting(
        self: TorchEngine, ids: Sequence[int], params: SamplingParams, **kwargs: Any
    ) -> Sample:
        seen.append(params)
        return await sample(self, ids, params, **kwargs)

    monkeypatch.setattr(TorchEngine, "sample", noting)
    only = an_evaluation(tmp_path, environment={"max_turns": 1}, eval={"decodings": decodings})
    await only.train()
    drawn = Counter((params.temperature, params.top_p) for params in seen)
    assert drawn == {(0.9, 0.95): 16, (0.0, 1.0): 8}


def test_environments_take_turns() -> None:
    tasks = [a_task("a0", "a"), a_task("a1", "a"), a_task("a2", "a"), a_task("b0", "b")]
    assert [task.key for task in interleave_environments(tasks)] == ["a0", "b0", "a1", "a2"]


@pytest.fixture
def no_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an evaluation takes no step")

    monkeypatch.setattr(LearnerRank, "step", refuse)
    monkeypatch.setattr(LearnerRank, "begin_save", refuse)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShortRun, str]:
    """A run of two steps, and its last checkpoint."""
    root = tmp_path_factory.mktemp("trained")
    run = ShortRun(root, schedule={"total_steps": 2}, eval=UNEVALUATED)
    asyncio.run(run.train())
    latest = find_latest(run.store, run.run_id)
    assert latest is not None
    return run, latest


def an_evaluation(root: Path, **sections: dict[str, Any]) -> ShortRun:
    run = ShortRun(root, **sections)
    run.spec = run.spec.model_copy(update={"kind": "eval"})
    return run


async def test_a_run_that_only_evaluates_a_checkpoint_repeats_its_runs_own_evaluation(
    tmp_path: Path, trained: tuple[ShortRun, str], no_updates: None
) -> None:
    run, latest = trained
    only = an_evaluation(tmp_path, eval={"before_training": False})
    only.store = run.store
    await only.train(resume_from=latest)

    (started,) = only.events(TrainerStarted)
    assert (started.total_steps, started.resumed_from_step) == (2, 2)
    found = {event.decoding: event for event in only.events(EvalCompleted)}
    own = {event.decoding: event for event in run.events(EvalCompleted) if event.step == 2}
    assert found.keys() == own.keys() == {"sampled", "greedy"}
    for decoding, event in found.items():
        assert event.step == 2
        scores = [(row.task_key, row.score, row.num_tokens) for row in event.outcomes]
        assert scores == [(r.task_key, r.score, r.num_tokens) for r in own[decoding].outcomes]
    assert only.events(StepCompleted) == []
    assert only.events(CheckpointSaved) == []
    assert complete_checkpoints(only.store, only.run_id) == ()
    assert {event.phase for event in only.events(PhaseStarted)} == {"sync", "eval"}


@pytest.mark.usefixtures("no_updates")
async def test_without_a_checkpoint_the_starting_policy_is_evaluated(tmp_path: Path) -> None:
    only = an_evaluation(tmp_path)
    await only.train()
    assert [(e.step, e.decoding) for e in only.events(EvalCompleted)] == [
        (0, "sampled"),
        (0, "greedy"),
    ]
    assert only.events(CheckpointSaved) == []


async def test_a_checkpoint_is_evaluated_on_tasks_it_was_not_trained_on(
    tmp_path: Path, trained: tuple[ShortRun, str]
) -> None:
    run, latest = trained
    only = an_evaluation(
        tmp_path, data={"env_keys": ["reddit"], "eval_tasks_per_env": 3, "seed": 5}
    )
    only.store = run.store
    await only.train(resume_from=latest)
    rows = only.events(EvalCompleted)[0].outcomes
    assert {row.env_key for row in rows} == {"reddit"}
    other = ShortRun(tmp_path, run_id="run_on", data={"env_keys": ["reddit"], "seed": 5})
    other.store = run.store
    with pytest.raises(CheckpointError):
        other.build(resume_from=latest)
