"""Held-out evaluation: every eval task under named decodings, one event each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from trainer.contract.events import EvalCompleted, RunWarning
from trainer.contract.outcomes import OutcomeRow, StopReason
from trainer.contract.sections import DecodingSpec, EvalSpec
from trainer.metrics import eval_metrics
from trainer.rollouts.wave import Wave
from trainer.sinks.journal import Journal
from trainer.types import Task
from trainer.watchdog import Watchdog
from trainer.waves import Waves


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Evaluates the policy that the engine holds."""

    spec: EvalSpec
    tasks: Sequence[Task]
    waves: Waves
    journal: Journal
    watchdog: Watchdog

    async def run(self, step: int, *, is_edge: bool) -> None:
        """Evaluate at `step`; `is_edge` (before and after training) runs all decodings.

        Raises:
            TrainerError, StopRequested: as `Waves.run`.
        """
        decodings = self._decodings(is_edge=is_edge)
        budget_s = 60.0 * (self.spec.budget_minutes or 0.0)
        end = time.time() + budget_s
        for index, decoding in enumerate(decodings):
            # Rollouts that end late take nothing from the next decoding, which would be left out.
            share_s = max(budget_s / len(decodings), (end - time.time()) / (len(decodings) - index))
            begin_until = time.time() + share_s if self.spec.budget_minutes else None
            await self._run_one(step, decoding, begin_until)

    async def _run_one(self, step: int, decoding: DecodingSpec, begin_until: float | None) -> None:
        began = time.perf_counter()
        tasks = self.tasks if begin_until is None else taking_turns(self.tasks)
        wave = Wave(
            step=step,
            split="eval",
            decoding=decoding.name,
            n_samples_per_prompt=decoding.n_samples_per_prompt,
            temperatures=dict.fromkeys((task.env_key for task in self.tasks), decoding.temperature),
            top_p=decoding.top_p,
            begin_until=begin_until,
        )
        async with self.watchdog.step(step):
            result = await self.waves.run(tasks, wave)
        self.journal.emit(
            EvalCompleted,
            step=step,
            decoding=decoding.name,
            temperature=decoding.temperature,
            n_samples_per_prompt=decoding.n_samples_per_prompt,
            pass_threshold=self.spec.pass_threshold,
            metrics=eval_metrics(
                result.rows,
                n=decoding.n_samples_per_prompt,
                pass_threshold=self.spec.pass_threshold,
            ),
            outcomes=result.rows,
            duration_s=time.perf_counter() - began,
        )
        self._report_budget(step, decoding, result.rows)

    def _report_budget(self, step: int, decoding: DecodingSpec, rows: Sequence[OutcomeRow]) -> None:
        missing = sum(row.stop_reason is StopReason.NOT_STARTED for row in rows)
        if missing:
            message = (
                f"the evaluation by {decoding.name} ran out of eval.budget_minutes: {missing} of"
                f" {len(rows)} rollouts were not begun and have no outcome"
            )
            self.journal.emit(RunWarning, step=step, code="eval_budget", message=message)

    def _decodings(self, *, is_edge: bool) -> tuple[DecodingSpec, ...]:
        chosen = self.spec.interval_decodings
        if is_edge or chosen is None:
            return self.spec.decodings
        return tuple(each for each in self.spec.decodings if each.name in chosen)


def taking_turns(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks with their environments in turn, each environment's in its own order."""
    by_env: dict[str, list[Task]] = {}
    for task in tasks:
        by_env.setdefault(task.env_key, []).append(task)
    rounds = zip_longest(*by_env.values())
    return tuple(task for each in rounds for task in each if task is not None)
