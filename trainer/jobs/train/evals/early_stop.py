"""Early stop of an evaluation: the order of its tasks, and a look after each of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.environment.task import Task
from hillclimb.protocol.events import EarlyStop
from hillclimb.spec.run import RunSpec
from hillclimb.stats.pass_rate import count_tasks
from hillclimb.stats.verdicts.sequential import SequentialComparison
from trainer.jobs.step_schedule import Schedule
from trainer.jobs.train.evals.history import EvalHistory, PastEval
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.seeds import derive_seed


def random_order(tasks: Sequence[Task], seed: int) -> tuple[Task, ...]:
    """Return the tasks in the order in which every evaluation of a run takes them."""
    drawing = random.Random(derive_seed(seed, "eval order"))
    return tuple(drawing.sample(list(tasks), len(tasks)))


@dataclass(slots=True, kw_only=True)
class Looks:
    """Looks at one evaluation, compared with an earlier one of the run: a `StopRule`."""

    request: RolloutRequest
    comparison: SequentialComparison
    baseline_step: int
    pass_threshold: float

    @classmethod
    def of(
        cls, spec: RunSpec, history: EvalHistory, request: RolloutRequest, tasks: Sequence[Task]
    ) -> Looks | None:
        """Return the looks at an evaluation of `tasks` in this order; None if it is complete."""
        rule = spec.eval.stop_when_decided
        baseline = _baseline(spec, history, request)
        if rule is None or baseline is None:
            return None
        return cls(
            request=request,
            comparison=SequentialComparison(
                baseline.counts,
                [(task.env_key, task.key) for task in tasks],
                num_candidates=_num_candidates(Schedule.of(spec), request.step, baseline.step),
                futility=rule.futility,
            ),
            baseline_step=baseline.step,
            pass_threshold=spec.eval.pass_threshold,
        )

    @property
    def num_enough(self) -> int | None:
        """Number of the first tasks whose verdict stands; None: not yet."""
        decision = self.comparison.decision
        return None if decision is None else decision.num_tasks

    def add(self, index: int, rollouts: Sequence[Rollout]) -> None:
        """Look at the evaluation again: all rollouts of the task at `index` have ended."""
        rows = outcome_rows(rollouts, self.request, trajectory_key="")
        (count,) = count_tasks(rows, pass_threshold=self.pass_threshold)
        self.comparison.add(index, count)

    def is_foreseeable(self, num_begun: int) -> bool:
        """Return True if the verdict stands however the tasks in flight end."""
        return self.comparison.is_foreseeable(num_begun)

    def result(self, *, num_discarded: int) -> EarlyStop | None:
        """Return how the evaluation ended early; None if it is complete."""
        decision = self.comparison.decision
        if decision is None:
            return None
        return EarlyStop(
            cause=decision.cause,
            verdict=decision.verdict,
            decided_at=decision.num_tasks,
            planned=self.comparison.num_planned,
            baseline_step=self.baseline_step,
            num_discarded=num_discarded,
        )


def _baseline(spec: RunSpec, history: EvalHistory, request: RolloutRequest) -> PastEval | None:
    """Return the evaluation to compare with; None if there is none before the request's step."""
    earlier = [each for each in history.of(request.decoding) if each.step < request.step]
    rule = spec.eval.stop_when_decided
    if rule is not None and rule.baseline_step is not None:
        earlier = [each for each in earlier if each.step == rule.baseline_step]
    return earlier[0] if earlier else None


def _num_candidates(schedule: Schedule, step: int, baseline_step: int) -> int:
    """Return from how many evaluations the one at `step` may be chosen, as the report does."""
    return 1 if step == schedule.total else schedule.evals_after(baseline_step)
