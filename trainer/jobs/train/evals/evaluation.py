"""Held-out evaluation: every eval task under named decodings, one event each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from hillclimb.environment.task import Task
from hillclimb.protocol.events import EarlyStop, EvalCompleted, RunWarning
from hillclimb.protocol.outcomes import OutcomeRow, StopReason
from hillclimb.spec.training.evaluation import DecodingSpec, EvalSpec
from trainer.attempt.context import AttemptContext
from trainer.attempt.watchdog import Watchdog
from trainer.jobs.rollout_service import RolloutService
from trainer.jobs.train.compute import ComputeMeter
from trainer.jobs.train.evals.early_stop import Looks, random_order
from trainer.jobs.train.evals.history import EvalHistory
from trainer.jobs.train.metrics import eval_metrics
from trainer.rollouts.request import RolloutRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Evaluates the policy that the engines hold."""

    context: AttemptContext
    tasks: Sequence[Task]
    rollout_service: RolloutService
    watchdog: Watchdog
    meter: ComputeMeter
    history: EvalHistory = field(default_factory=EvalHistory)
    """Evaluations of the run so far; those of earlier attempts as far as they are needed."""

    @property
    def spec(self) -> EvalSpec:
        """The run's section `eval`."""
        return self.context.spec.eval

    async def run(self, step: int, *, is_edge: bool) -> None:
        """Evaluate at `step`; `is_edge` (before and after training) runs all decodings.

        Raises:
            TrainerError, StopRequested: as `RolloutService.run`.
        """
        decodings = self._decodings(is_edge=is_edge)
        budget_s = 60.0 * (self.spec.budget_minutes or 0.0)
        end = time.time() + budget_s
        for index, decoding in enumerate(decodings):
            # Rollouts that end late take no time from the next decoding.
            share_s = max(budget_s / len(decodings), (end - time.time()) / (len(decodings) - index))
            begin_until = time.time() + share_s if self.spec.budget_minutes else None
            await self._run_one(step, decoding, begin_until)

    async def _run_one(self, step: int, decoding: DecodingSpec, begin_until: float | None) -> None:
        began = time.perf_counter()
        tasks = self._ordered(begin_until)
        request = RolloutRequest(
            step=step,
            split="eval",
            decoding=decoding.name,
            n_samples_per_prompt=decoding.n_samples_per_prompt,
            temperatures=dict.fromkeys((task.env_key for task in self.tasks), decoding.temperature),
            top_p=decoding.top_p,
            begin_until=begin_until,
        )
        async with self.watchdog.step(step):
            rows, stopped_early = await self._roll_out(tasks, request)
        event = EvalCompleted(
            step=step,
            decoding=decoding.name,
            temperature=decoding.temperature,
            n_samples_per_prompt=decoding.n_samples_per_prompt,
            pass_threshold=self.spec.pass_threshold,
            metrics=eval_metrics(
                rows, n=decoding.n_samples_per_prompt, pass_threshold=self.spec.pass_threshold
            ),
            outcomes=rows,
            duration_s=time.perf_counter() - began,
            compute=self.meter.of_eval(
                rows, num_discarded=stopped_early.num_discarded if stopped_early else 0
            ),
            stopped_early=stopped_early,
        )
        self.history.add(event)
        self.context.journal.emit(event)
        self._report_budget(step, decoding, rows)

    def _ordered(self, begin_until: float | None) -> tuple[Task, ...]:
        """Return the tasks in the order in which they begin."""
        if self.spec.stop_when_decided is not None:
            return random_order(self.tasks, self.context.spec.schedule.seed)
        return tuple(self.tasks) if begin_until is None else interleave_environments(self.tasks)

    async def _roll_out(
        self, tasks: Sequence[Task], request: RolloutRequest
    ) -> tuple[tuple[OutcomeRow, ...], EarlyStop | None]:
        """Run the rollouts of all tasks, or of the first ones until the verdict stands."""
        looks = Looks.of(self.context.spec, self.history, request, tasks)
        if looks is None:
            return (await self.rollout_service.run(tasks, request)).rows, None
        result, num_discarded = await self.rollout_service.run_until(tasks, request, looks)
        return result.rows, looks.result(num_discarded=num_discarded)

    def _report_budget(self, step: int, decoding: DecodingSpec, rows: Sequence[OutcomeRow]) -> None:
        missing = sum(row.stop_reason is StopReason.NOT_STARTED for row in rows)
        if missing:
            message = (
                f"the evaluation {decoding.name} ran out of eval.budget_minutes: {missing} of"
                f" {len(rows)} rollouts were not started and have no outcome"
            )
            self.context.journal.emit(RunWarning(step=step, code="eval_budget", message=message))

    def _decodings(self, *, is_edge: bool) -> tuple[DecodingSpec, ...]:
        names = self.spec.interval_decodings
        if is_edge or names is None:
            return self.spec.decodings
        return tuple(decoding for decoding in self.spec.decodings if decoding.name in names)


def interleave_environments(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks round-robin by environment, in order within each environment."""
    by_env: dict[str, list[Task]] = {}
    for task in tasks:
        by_env.setdefault(task.env_key, []).append(task)
    rounds = zip_longest(*by_env.values())
    return tuple(task for tasks in rounds for task in tasks if task is not None)
