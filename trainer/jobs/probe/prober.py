"""A probe: every task k times, and a report, also of as much as there was time for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainer.contract.events import ProbeCompleted, RunWarning
from trainer.contract.outcomes import StopReason
from trainer.contract.probereport import ProbeReport, report_rows
from trainer.contract.spec import RunSpec
from trainer.crew import Samplers
from trainer.errors import RunTimeout, StepTimeout, TrainerError
from trainer.evaluation import taking_turns
from trainer.prompting import PromptReport
from trainer.rollouts.operations import env_health
from trainer.rollouts.roller import CLOSE_TIMEOUT_S
from trainer.rollouts.training import training_temperatures
from trainer.rollouts.unstarted import unstarted
from trainer.rollouts.wave import Rollout, Wave
from trainer.sinks.journal import Journal
from trainer.stopping import StopRequested
from trainer.timing import Clock
from trainer.types import Task
from trainer.watchdog import Watchdog
from trainer.waves import WaveResult, Waves

DECODING = "probe"
"""Under which a probe's rollouts are stored; their split is that of their tasks, `train`."""
CUT_SHORT = "the probe was stopped before this rollout had ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParts:
    """What a probe is made of."""

    spec: RunSpec
    tasks: Sequence[Task]
    samplers: Samplers
    waves: Waves
    journal: Journal
    clock: Clock
    watchdog: Watchdog
    prompts: PromptReport


class Prober:
    """Rolls out and reports once; `step` is that of the checkpoint that is probed."""

    def __init__(self, parts: ProbeParts, *, step: int) -> None:
        self._parts = parts
        self._report: ProbeReport | None = None
        self.step = step

    async def train(self) -> None:
        """Probe, and report.

        Raises:
            StopRequested, RunTimeout, StepTimeout: asked to stop or out of time; what had ended
                by then is reported, and the rest as missing.
            TrainerError: the engine failed, or nothing can be stored.
        """
        parts, began, ended = self._parts, time.perf_counter(), list[Rollout]()
        parts.watchdog.watch_run()
        await parts.waves.stop.unless(parts.prompts.tell(self.step))
        tasks, wave = taking_turns(parts.tasks), self._wave()
        parts.waves.announce(wave, num_groups=len(tasks))
        early: StopRequested | RunTimeout | StepTimeout | None = None
        try:
            with parts.clock.evaluation():
                async with parts.watchdog.step(self.step):
                    work = parts.waves.collector.collect(tasks, wave, on_ended=ended.append)
                    await parts.waves.stop.unless(work)
                    # What was found counts also where they no longer answer.
                    with suppress(TrainerError):
                        await parts.samplers.refresh()
        except (StopRequested, RunTimeout, StepTimeout) as error:
            early = error
        groups = self._groups(tasks, wave, ended)
        result = await parts.waves.keep(groups, wave)
        self._emit(result, wave, duration_s=time.perf_counter() - began, complete=early is None)
        if early is not None:
            raise early

    async def close(self) -> None:
        """Stop the engines."""
        try:
            await self._parts.waves.close()
        finally:
            await self._parts.samplers.close()

    def summary(self) -> str:
        """Say what was found in each environment."""
        found = self._report.environments.items() if self._report else ()
        verdicts = ", ".join(f"{key} {each.verdict}" for key, each in found)
        return f"probed {len(self._parts.tasks)} tasks: {verdicts}"

    def _wave(self) -> Wave:
        spec = self._parts.spec
        budget_s = _budget_s(spec)
        return Wave(
            step=self.step,
            split="train",
            decoding=DECODING,
            n_samples_per_prompt=spec.probe.n_samples_per_prompt,
            temperatures=training_temperatures(spec),
            begin_until=None if budget_s is None else time.time() + budget_s,
        )

    def _groups(
        self, tasks: Iterable[Task], wave: Wave, ended: Sequence[Rollout]
    ) -> tuple[tuple[Rollout, ...], ...]:
        """Return all rollouts by task and sample; those that had not ended count as not begun."""
        found = {(r.trajectory.task.key, r.trajectory.sample_index): r for r in ended}
        attempt = self._parts.waves.attempt_dir.attempt
        return tuple(
            tuple(
                found.get((task.key, index))
                or unstarted(task, index, wave, attempt=attempt, why=CUT_SHORT)
                for index in range(wave.n_samples_per_prompt)
            )
            for task in tasks
        )

    def _emit(self, result: WaveResult, wave: Wave, *, duration_s: float, complete: bool) -> None:
        parts, spec = self._parts, self._parts.spec
        group_size = spec.rollout.n_samples_per_prompt
        begun = [
            rollout
            for group in result.rollouts
            for rollout in group
            if rollout.trajectory.stop_reason is not StopReason.NOT_STARTED
        ]
        self._report = report_rows(
            result.rows, pass_threshold=spec.eval.pass_threshold, group_size=group_size
        )
        parts.journal.emit(
            ProbeCompleted,
            step=self.step,
            complete=complete,
            n_samples_per_prompt=wave.n_samples_per_prompt,
            group_size=group_size,
            pass_threshold=spec.eval.pass_threshold,
            temperatures=dict(wave.temperatures),
            environments=env_health(begun),
            outcomes=result.rows,
            duration_s=duration_s,
        )
        missing = len(result.rows) - len(begun)
        if complete and missing:
            message = (
                f"the time to begin rollouts was over: {missing} of {len(result.rows)} rollouts"
                f" were not begun and have no outcome; raise {_bounded_by(spec)}"
            )
            parts.journal.emit(RunWarning, step=self.step, code="probe_budget", message=message)
        for notice in parts.samplers.notices():
            parts.journal.emit(RunWarning, step=self.step, code=notice.code, message=notice.message)


def _budget_s(spec: RunSpec) -> float | None:
    """Return the seconds in which rollouts are begun: those in flight then end within the step."""
    if spec.probe.budget_minutes is not None:
        return 60.0 * spec.probe.budget_minutes
    if spec.deterministic:
        return None
    left_s = spec.schedule.step_timeout_s - spec.environment.longest_rollout_s
    # Closing an environment is not within a rollout's time. Something is begun in any case.
    return left_s - min(CLOSE_TIMEOUT_S, left_s / 2.0)


def _bounded_by(spec: RunSpec) -> str:
    given = spec.probe.budget_minutes is not None
    return "probe.budget_minutes" if given else "schedule.step_timeout_s"
