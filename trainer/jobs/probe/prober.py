"""A probe: k rollouts of every task and one report, also of a probe cut short."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hillclimb.environment.task import Task
from hillclimb.protocol.events import ProbeCompleted, RunWarning
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.run import RunSpec
from hillclimb.stats.probe_report import ProbeReport, report_rows
from trainer.attempt.context import AttemptContext
from trainer.attempt.stop_signal import StopRequested
from trainer.attempt.watchdog import Watchdog
from trainer.errors import RunTimeout, StepTimeout, TrainerError
from trainer.jobs.prompt_preview import PromptPreview
from trainer.jobs.rollout_service import RolloutResults, RolloutService
from trainer.jobs.train.evals.evaluation import interleave_environments
from trainer.rollouts.records.operations import env_health
from trainer.rollouts.records.skipped import skipped_rollout
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.training_request import training_temperatures
from trainer.rollouts.worker import CLOSE_TIMEOUT_S
from trainer.workers.group import SamplingWorkers

DECODING = "probe"
"""Decoding name of a probe's rollouts; their split is that of their tasks, `train`."""
CUT_SHORT = "the probe was stopped before this rollout had ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParts:
    """Parts of a probe."""

    context: AttemptContext
    tasks: Sequence[Task]
    samplers: SamplingWorkers
    rollout_service: RolloutService
    watchdog: Watchdog
    prompts: PromptPreview


class Prober:
    """Runs the rollouts and reports once; `step` is that of the probed checkpoint."""

    def __init__(self, parts: ProbeParts, *, step: int) -> None:
        self._parts = parts
        self._context = parts.context
        self._report: ProbeReport | None = None
        self.step = step

    async def train(self) -> None:
        """Run the rollouts and report.

        Raises:
            StopRequested, RunTimeout, StepTimeout: stopped on request or out of time; completed
                rollouts are reported, and the others as missing.
            TrainerError: the engine failed, or nothing can be stored.
        """
        parts, context = self._parts, self._context
        began, completed = time.perf_counter(), list[Rollout]()
        parts.watchdog.watch_run()
        await context.stop.race(parts.prompts.emit(self.step))
        tasks, request = interleave_environments(parts.tasks), self._request()
        parts.rollout_service.announce(request, num_groups=len(tasks))
        early: StopRequested | RunTimeout | StepTimeout | None = None
        try:
            with context.clock.evaluation():
                async with parts.watchdog.step(self.step):
                    work = parts.rollout_service.collector.collect(
                        tasks, request, on_completed=completed.append
                    )
                    await context.stop.race(work)
                    # The results count also if the engines no longer answer.
                    with suppress(TrainerError):
                        await parts.samplers.refresh()
        except (StopRequested, RunTimeout, StepTimeout) as error:
            early = error
        groups = self._groups(tasks, request, completed)
        result = await parts.rollout_service.record(groups, request)
        self._emit(result, request, duration_s=time.perf_counter() - began, complete=early is None)
        if early is not None:
            raise early

    async def close(self) -> None:
        """Stop the engines."""
        try:
            await self._parts.rollout_service.close()
        finally:
            await self._parts.samplers.close()

    def summary(self) -> str:
        """Return the verdict on each environment."""
        environments = self._report.environments.items() if self._report else ()
        verdicts = ", ".join(f"{key} {report.verdict}" for key, report in environments)
        return f"probed {len(self._parts.tasks)} tasks: {verdicts}"

    def _request(self) -> RolloutRequest:
        spec = self._context.spec
        budget_s = _budget_s(spec)
        return RolloutRequest(
            step=self.step,
            split="train",
            decoding=DECODING,
            n_samples_per_prompt=spec.probe.n_samples_per_prompt,
            temperatures=training_temperatures(spec),
            begin_until=None if budget_s is None else time.time() + budget_s,
        )

    def _groups(
        self, tasks: Iterable[Task], request: RolloutRequest, completed: Sequence[Rollout]
    ) -> tuple[tuple[Rollout, ...], ...]:
        """Return all rollouts by task and sample; incomplete ones count as not started."""
        by_sample = {(r.trajectory.task.key, r.trajectory.sample_index): r for r in completed}
        attempt = self._context.dir.attempt
        return tuple(
            tuple(
                by_sample.get((task.key, index))
                or skipped_rollout(task, index, request, attempt=attempt, why=CUT_SHORT)
                for index in range(request.n_samples_per_prompt)
            )
            for task in tasks
        )

    def _emit(
        self, result: RolloutResults, request: RolloutRequest, *, duration_s: float, complete: bool
    ) -> None:
        journal, spec = self._context.journal, self._context.spec
        group_size = spec.rollout.n_samples_per_prompt
        started = [
            rollout
            for rollout in result.rollouts
            if rollout.trajectory.stop_reason is not StopReason.NOT_STARTED
        ]
        self._report = report_rows(
            result.rows, pass_threshold=spec.eval.pass_threshold, group_size=group_size
        )
        journal.emit(
            ProbeCompleted(
                step=self.step,
                complete=complete,
                n_samples_per_prompt=request.n_samples_per_prompt,
                group_size=group_size,
                pass_threshold=spec.eval.pass_threshold,
                temperatures=dict(request.temperatures),
                environments=env_health(started),
                outcomes=result.rows,
                duration_s=duration_s,
            )
        )
        missing = len(result.rows) - len(started)
        if complete and missing:
            message = (
                f"the time to start rollouts was over: {missing} of {len(result.rows)} rollouts"
                f" were not started and have no outcome; raise {_limiting_setting(spec)}"
            )
            journal.emit(RunWarning(step=self.step, code="probe_budget", message=message))
        for restart in self._parts.samplers.notices():
            journal.emit(RunWarning(step=self.step, code=restart.code, message=restart.message))


def _budget_s(spec: RunSpec) -> float | None:
    """Return the seconds in which rollouts may start, so that all of them end within the step."""
    if spec.probe.budget_minutes is not None:
        return 60.0 * spec.probe.budget_minutes
    if spec.deterministic:
        return None
    left_s = spec.schedule.step_timeout_s - spec.environment.longest_rollout_s
    # Closing an environment is not part of a rollout's time. Some rollouts start in any case.
    return left_s - min(CLOSE_TIMEOUT_S, left_s / 2.0)


def _limiting_setting(spec: RunSpec) -> str:
    if spec.probe.budget_minutes is None:
        return "schedule.step_timeout_s"
    return "probe.budget_minutes"
