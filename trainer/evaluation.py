"""Held-out evaluation: every eval task under named decodings, one event each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.contract.events import EvalCompleted
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
        for decoding in self._decodings(is_edge=is_edge):
            await self._run_one(step, decoding)

    def num_rollouts(self, *, is_edge: bool) -> int:
        """Return how many rollouts `run` makes."""
        decodings = self._decodings(is_edge=is_edge)
        return len(self.tasks) * sum(decoding.n_samples_per_prompt for decoding in decodings)

    async def _run_one(self, step: int, decoding: DecodingSpec) -> None:
        began = time.perf_counter()
        wave = Wave(
            step=step,
            split="eval",
            decoding=decoding.name,
            n_samples_per_prompt=decoding.n_samples_per_prompt,
            temperatures=dict.fromkeys((task.env_key for task in self.tasks), decoding.temperature),
        )
        async with self.watchdog.step(step):
            result = await self.waves.run(self.tasks, wave)
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

    def _decodings(self, *, is_edge: bool) -> tuple[DecodingSpec, ...]:
        chosen = self.spec.interval_decodings
        if is_edge or chosen is None:
            return self.spec.decodings
        return tuple(each for each in self.spec.decodings if each.name in chosen)
