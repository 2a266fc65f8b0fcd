"""Steps of a warm start: cross-entropy on demonstrations, checkpoints as in a training run."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from hillclimb.protocol.events import ComputeSpent, PhaseStarted, StepCompleted
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.attempt.context import AttemptContext
from trainer.attempt.stop_signal import StopRequested
from trainer.attempt.watchdog import Watchdog
from trainer.errors import AttemptSuperseded, RunTimeout, TrainerError
from trainer.jobs.sft.sequences import Sequences
from trainer.jobs.step_schedule import Schedule
from trainer.jobs.train.checkpoints import Position
from trainer.jobs.train.saving import Saver
from trainer.learners.inline import InlineLearner

MAX_HELD_OUT = 256
"""Held-out sequences whose loss is taken (count), the first of them."""
_NAMES = {
    "policy/final_loss": "sft/loss",
    "policy/grad_norm": "sft/grad_norm",
    "policy/policy_lr": "sft/lr",
    "policy/num_action_tokens": "sft/num_tokens",
}
"""Metrics of the learner that a warm start reports under names of its own."""
_SPEED = ("policy/tokens_per_second", "policy/flops", "policy/peak_memory_gib")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitatorParts:
    """Parts of a warm start; each is built once per process."""

    context: AttemptContext
    sequences: Sequences
    learner: InlineLearner
    saver: Saver
    watchdog: Watchdog


class Imitator:
    """Imitates from step `start` to the last; `step` is the last one completed."""

    def __init__(self, parts: ImitatorParts, *, start: int, is_final: bool) -> None:
        self._parts = parts
        self._spec = parts.context.spec
        self._schedule = Schedule.of(self._spec)
        self._is_final_saved = is_final
        self._held_out: float | None = None
        self._start = start
        self.step = start

    async def train(self) -> None:
        """Take the steps and save.

        Raises:
            StopRequested, RunTimeout: stopped; the last completed step is saved.
            TrainerError: the run cannot go on; a pending save is complete.
        """
        self._parts.watchdog.watch_run()
        try:
            while self.step < self._schedule.total:
                self._parts.context.stop.check()
                async with self._parts.watchdog.step(self.step + 1):
                    await self._take_step()
                if self._schedule.saves_after(self.step):
                    await self._save(final=self.step == self._schedule.total)
            if not self._is_final_saved:
                await self._save(final=True)
        except (StopRequested, RunTimeout):
            await self._save_last_step()
            raise
        except AttemptSuperseded:
            raise
        except TrainerError:
            await self._parts.saver.drain()
            raise

    def summary(self) -> str:
        """Return the result in a few words."""
        number = len(self._parts.sequences.train)
        loss = "" if self._held_out is None else f", held-out loss {self._held_out:.3f} nats"
        return f"imitated {number} conversations in {self._schedule.total} steps{loss}"

    async def close(self) -> None:
        """Finish the pending save and end the trial under way."""
        try:
            await self._parts.saver.drain()
        except TrainerError as error:
            # The run has ended for another reason already.
            _log.warning("the last save failed: %s", error)
        finally:
            await self._parts.saver.close()

    async def _take_step(self) -> None:
        parts, context, step = self._parts, self._parts.context, self.step + 1
        schedule = self._spec.schedule
        with context.clock.step():
            context.journal.emit(PhaseStarted(step=step, phase="train"))
            sequences = parts.sequences.batch(step, schedule.train_batch_size, schedule.seed)
            size = schedule.mini_batch_size
            batch = Batch(
                mini_batches=tuple(
                    tuple(sequences[first : first + size])
                    for first in range(0, len(sequences), size)
                )
            )
            with context.clock.phase("policy_train"):
                learned = await parts.learner.step(batch)
        metrics = {own: learned[name] for name, own in _NAMES.items()}
        metrics |= {name: learned[name] for name in _SPEED if name in learned}
        metrics["sft/epoch"] = step * schedule.train_batch_size / len(parts.sequences.train)
        if self._is_measured_after(step):
            metrics["sft/held_out_loss"] = self._held_out = await self._held_out_loss()
        self.step = step
        self._report(metrics, sequences)

    def _is_measured_after(self, step: int) -> bool:
        """Tell whether the held-out loss follows: after the first step, and as evaluations do."""
        is_due = step == self._start + 1 or self._schedule.evaluates_after(step)
        return is_due and bool(self._parts.sequences.held_out)

    async def _held_out_loss(self) -> float:
        """Return the mean of -log pi over the tokens that count, of all held-out sequences."""
        total, number = 0.0, 0
        for each in self._parts.sequences.held_out[:MAX_HELD_OUT]:
            logprobs = (await self._parts.learner.logprobs(each.token_ids)).tolist()
            own = [p for p, counts in zip(logprobs, each.action_mask[1:], strict=True) if counts]
            total, number = total - math.fsum(own), number + len(own)
        return total / number

    def _report(self, metrics: dict[str, float], sequences: list[TrainingSequence]) -> None:
        context, step = self._parts.context, self.step
        metrics |= context.clock.take()
        metrics["trainer/global_step"] = float(step)
        num_tokens = sum(len(each.token_ids) for each in sequences)
        context.journal.emit(
            StepCompleted(
                step=step,
                metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
                outcomes=(),
                compute=ComputeSpent(
                    num_trained_tokens=num_tokens,
                    rollout_flops=0.0,
                    train_flops=metrics.get("policy/flops"),
                ),
                eta_s=context.clock.eta_s(steps_left=self._schedule.total - step, evals_left=0),
            )
        )
        _log.info("step %d/%d: loss %.4f", step, self._schedule.total, metrics["sft/loss"])

    async def _save(self, *, final: bool = False) -> None:
        position = Position(
            step=self.step,
            sampler={},
            buffer={},
            evaluated_step=None,
            final=final,
            ran_s=self._parts.watchdog.ran_s,
        )
        async with self._parts.watchdog.step(self.step, phase="checkpoint"):
            await self._parts.saver.save(position)
        self._is_final_saved = final

    async def _save_last_step(self) -> None:
        """Save the last completed step, unless it is saved already."""
        await self._parts.saver.drain()
        if self.step not in (self._start, self._parts.saver.saved_step):
            await self._save()
            await self._parts.saver.drain()
