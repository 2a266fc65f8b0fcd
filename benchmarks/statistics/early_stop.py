"""Evaluations that end when their verdict stands, simulated through the product's own code.

    .venv-trainer/bin/python benchmarks/statistics/early_stop.py [--runs N]

Share of rollouts: 300 tasks of which 30 % change, at several gains. The trainer's own order of
tasks, collector and looks carry out each evaluation on a loop with simulated time. Rollouts that
pass are shorter (durations are log-normal, with medians of 20 s and 60 s), so the order of
completion is biased. A rollout counts as used once it has begun, needed or not.

Null runs, and the power of many more evaluations, are in `early_stop_null.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import selectors
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from statistics import fmean
from typing import Any

from verdicts import POWER_CHANGED, POWER_TASKS, RESULTS

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts import sequential
from hillclimb.stats.verdicts.compare import compare
from hillclimb.stats.verdicts.sequential import SequentialComparison
from hillclimb.stats.verdicts.verdict import Selection, Verdict
from trainer.jobs.train.evals.early_stop import Looks, random_order
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.until_enough import FirstGroups
from trainer.rollouts.records.skipped import rollout_id
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.transcript import RolloutIdentity, Transcript

GAINS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
CONCURRENCY = (8, 32)
FUTILITY = 0.1
BEFORE = 0.45
"""Pass rate of the earlier evaluation."""
MEDIAN_PASS_S, MEDIAN_FAIL_S, SPREAD = 20.0, 60.0, 0.6
REQUEST = RolloutRequest(
    step=10, split="eval", decoding="sampled", n_samples_per_prompt=1, temperatures={}
)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock leaps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        """Return the simulated time (seconds)."""
        return self.now_s


class _NoWaiting(selectors.SelectSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.now_s += timeout or 0.0
        return super().select(0)


@dataclass(slots=True)
class SimulatedRunner:
    """Rollouts that end as drawn beforehand; a pass is shorter."""

    passes: Mapping[str, bool]
    seconds: Mapping[str, float]
    spent_s: float = 0.0
    """Time of all rollouts, cancelled ones included."""

    async def run_rollout(self, task: Task, sample_index: int, request: RolloutRequest) -> Rollout:
        """Wait for the rollout's time and return its outcome."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await asyncio.sleep(self.seconds[task.key])
        finally:
            self.spent_s += loop.time() - begun
        identity = RolloutIdentity(
            rollout_id=rollout_id(1, request, task, sample_index),
            sample_index=sample_index,
            num_infra_retries=0,
        )
        outcome = Outcome(status=OutcomeStatus.GRADED, score=float(self.passes[task.key]))
        return Rollout(
            trajectory=Transcript().trajectory(task, outcome, StopReason.DONE, identity),
            num_turns=1,
            duration_s=self.seconds[task.key],
            infra_errors=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Averages over evaluations that end early, relative to complete ones."""

    gain: float
    concurrency: int
    futility: float | None
    improved: float
    """Share of evaluations with the word IMPROVED, as the report computes it."""
    improved_if_complete: float
    """The same of the complete evaluations, over the same outcomes."""
    futile: float
    """Share that ended as futile."""
    lost_by_futility: float
    """Share that ended as futile and would have been IMPROVED or REGRESSED."""
    tasks: float
    """Share of the tasks that have an outcome."""
    rollouts: float
    """Share of the rollouts that had begun, cancelled ones included."""
    seconds: float
    """Share of the time of all rollouts."""
    delta_if_improved: float | None
    """Mean observed gain of the evaluations with that word: more than the true one."""


def shares(gain: float, concurrency: int, futility: float | None, num_runs: int) -> Shares:
    """Simulate evaluations with a gain."""
    drawing = random.Random(f"{gain} {concurrency}")
    results = [_evaluation(gain, concurrency, futility, drawing) for _ in range(num_runs)]
    deltas = [each.delta for each in results if each.word is Verdict.IMPROVED]
    return Shares(
        gain=gain,
        concurrency=concurrency,
        futility=futility,
        improved=fmean(each.word is Verdict.IMPROVED for each in results),
        improved_if_complete=fmean(each.word_if_complete is Verdict.IMPROVED for each in results),
        futile=fmean(each.is_futile for each in results),
        lost_by_futility=fmean(
            each.is_futile and each.word_if_complete in (Verdict.IMPROVED, Verdict.REGRESSED)
            for each in results
        ),
        tasks=fmean(each.num_tasks for each in results) / POWER_TASKS,
        rollouts=fmean(each.num_begun for each in results) / POWER_TASKS,
        seconds=fmean(each.seconds for each in results),
        delta_if_improved=fmean(deltas) if deltas else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    word: Verdict
    word_if_complete: Verdict
    is_futile: bool
    num_tasks: int
    num_begun: int
    seconds: float
    delta: float


def _evaluation(
    gain: float, concurrency: int, futility: float | None, drawing: random.Random
) -> _Result:
    tasks = [
        Task(key=f"t{i}", env_key="env", prompt="", template="t", difficulty=None)
        for i in range(POWER_TASKS)
    ]
    before, after = {}, {}
    for task in tasks:
        before[task.key], after[task.key] = _outcomes(gain, drawing)
    old = [_count(task.key, before[task.key]) for task in tasks]
    ordered = random_order(tasks, drawing.getrandbits(32))
    looks = Looks(
        request=REQUEST,
        comparison=SequentialComparison(
            old, [("env", task.key) for task in ordered], futility=futility
        ),
        baseline_step=0,
        pass_threshold=1.0,
    )
    runner = SimulatedRunner(after, {key: _seconds(ok, drawing) for key, ok in after.items()})
    first = _collect(runner, ordered, looks, concurrency)
    num_tasks = len(first.groups)
    stop = looks.result(num_discarded=first.num_discarded)
    new = [_count(group[0].trajectory.task.key, after[group[0].trajectory.task.key])
           for group in first.groups]  # fmt: skip
    selection = Selection(is_complete=stop is None)
    table = compare(*sequential.shared_tasks(old, new), selection=selection)
    assert stop is None or stop.verdict == table.overall.verdict
    complete = compare(old, [_count(task.key, after[task.key]) for task in tasks])
    return _Result(
        word=table.overall.verdict,
        word_if_complete=complete.overall.verdict,
        is_futile=stop is not None and stop.cause == "futile",
        num_tasks=num_tasks,
        num_begun=num_tasks + first.num_discarded,
        seconds=runner.spent_s / sum(runner.seconds.values()),
        delta=table.overall.delta or 0.0,
    )


def _outcomes(gain: float, drawing: random.Random) -> tuple[bool, bool]:
    up, down = (POWER_CHANGED + gain) / 2.0, (POWER_CHANGED - gain) / 2.0
    draw = drawing.random()
    if draw < up:
        return False, True
    if draw < up + down:
        return True, False
    same = drawing.random() < (BEFORE - down) / (1.0 - up - down)
    return same, same


def _seconds(passed: bool, drawing: random.Random) -> float:  # noqa: FBT001
    return (MEDIAN_PASS_S if passed else MEDIAN_FAIL_S) * drawing.lognormvariate(0.0, SPREAD)


def _count(key: str, passed: bool) -> TaskCount:  # noqa: FBT001
    return TaskCount(
        task_key=key,
        env_key="env",
        template="t",
        held_out_template=False,
        num_graded=1,
        num_passed=int(passed),
        num_missing=0,
    )


def _collect(
    runner: SimulatedRunner, tasks: tuple[Task, ...], looks: Looks, concurrency: int
) -> FirstGroups:
    collector = Collector(runner, max_concurrent_rollouts=concurrency)
    with asyncio.Runner(loop_factory=SimulatedLoop) as loop:
        return loop.run(collector.collect_until(tasks, REQUEST, looks))


def _remember_e_values() -> None:
    """Let the product's function compute the e-value of the same differences once."""
    compute = sequential.log_e_value
    remembered = cache(lambda differences: compute(dict(differences)))

    def log_e_value(differences: Mapping[Fraction, int]) -> float:
        return remembered(frozenset(differences.items()))

    sequential.log_e_value = log_e_value


def main() -> None:
    """Print the figures and write them to `results/early_stop.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    _remember_e_values()
    power = []
    for gain in GAINS:
        for concurrency, futility in [(each, None) for each in CONCURRENCY] + [(8, FUTILITY)]:
            power.append(shares(gain, concurrency, futility, options.runs))
            print(asdict(power[-1]), flush=True)
    facts = {"num_runs": options.runs, "shares": [asdict(each) for each in power]}
    (RESULTS / "early_stop.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
