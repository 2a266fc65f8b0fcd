"""The training loop: the algorithm on one screen, in `Trainer.train` and `Trainer._train_step`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from trainer.algo.batch import BatchPlan, build_batch, judge
from trainer.algo.dynamic import Chosen, choose
from trainer.algo.sequences import Batch
from trainer.algo.signal import why_nothing_is_learned
from trainer.checkpoints import Position
from trainer.contract.events import PhaseStarted, RunWarning
from trainer.contract.spec import RunSpec
from trainer.crew import Crew
from trainer.data.feedback import feed_back
from trainer.data.sampler import TaskSampler
from trainer.engines.canary import canary_gap, canary_tolerance
from trainer.errors import (
    AttemptSuperseded,
    EnvironmentOutage,
    RunTimeout,
    StepTimeout,
    StorageFull,
    TrainerError,
)
from trainer.evaluation import Evaluator
from trainer.prompting import PromptReport
from trainer.reporting import StepReporter, engine_metrics
from trainer.rollouts.collect import as_groups
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.staleness import staleness_metrics
from trainer.rollouts.stream import GroupStream, Taken
from trainer.rollouts.training import training_temperatures, training_wave
from trainer.saving import Saver
from trainer.schedule import Schedule
from trainer.sinks.journal import Journal
from trainer.stopping import Stop, StopRequested
from trainer.stores.base import StoreError
from trainer.timing import SCORING, Clock
from trainer.watchdog import Watchdog
from trainer.waves import Waves

BETWEEN_UPDATES = ("rollout", "eval")
"""Phases, as in `PhaseStarted`, in which the learner stands where the last step left it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop puts together; each is made once per process."""

    spec: RunSpec
    sampler: TaskSampler
    stream: GroupStream
    crew: Crew
    waves: Waves
    evaluator: Evaluator
    reporter: StepReporter
    saver: Saver
    journal: Journal
    stop: Stop
    clock: Clock
    watchdog: Watchdog
    canary_tokens: Sequence[int]
    prompts: PromptReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where training begins."""

    step: int = 0
    is_first: bool = True
    """False when this very run has trained before and only goes on."""
    evaluated_step: int | None = None
    """Step of this run's last complete evaluation."""
    is_final: bool = False
    """True when nothing is left to save: the checkpoint to go on from is the one after the last
    step, or the run only evaluates."""


class Trainer:
    """Trains one run from `start` to its last step; `step` is the last one completed."""

    def __init__(self, parts: Parts, start: Start) -> None:
        self._parts = parts
        self._start = start
        self._schedule = Schedule.of(parts.spec, start=start.step)
        self._drawn = self._draw_state()
        self._is_final_saved = start.is_final
        self._evaluated_step = start.evaluated_step
        self.step = start.step

    async def train(self) -> None:
        """Train, evaluate and save until the last step is done.

        Raises:
            StopRequested: asked to stop; the last completed step is saved.
            EnvironmentOutage: environments fail; the last completed step is saved.
            RunTimeout: the run's time is over; the last completed step is saved.
            TrainerError: the run cannot go on, or a step hangs; the save that was under way is
                complete, and the last completed step is saved if the learner stands there.
        """
        watchdog = self._parts.watchdog
        watchdog.watch_run()
        await self._parts.stop.unless(self._parts.prompts.tell(self.step))
        try:
            async with watchdog.step(self.step):
                await self._sync_weights(self.step)
            await self._evaluate_when_due()
            while self.step < self._schedule.total:
                self._parts.stop.check()
                async with watchdog.step(self.step + 1):
                    await self._train_step()
                await self._evaluate_when_due()
                await self._save_when_due()
            if not self._is_final_saved:
                await self._save(final=True)
        except (StopRequested, EnvironmentOutage, RunTimeout):
            await self._save_last_step()
            raise
        except AttemptSuperseded:
            raise
        except TrainerError as end:
            await self._keep_what_is_done(end)
            raise

    def summary(self) -> str:
        """Say what was done."""
        if self._parts.spec.kind == "eval":
            return f"evaluated step {self.step}"
        return f"trained {self._schedule.total} steps"

    async def close(self) -> None:
        """Stop the background work of the engine and of saving."""
        try:
            await self._finish_storing()
        finally:
            # Cancelled or not: other processes must not outlive this one.
            await self._end_workers()

    async def _finish_storing(self) -> None:
        try:
            await self._parts.saver.drain()
        except (TrainerError, StoreError) as error:
            # The run has an end already; what the last save met is not it.
            _log.warning("the last save did not end well: %s", error)
        await self._parts.waves.close()

    async def _end_workers(self) -> None:
        try:
            await self._parts.stream.close()
        finally:
            await self._parts.crew.close()

    async def _train_step(self) -> None:
        """Draw tasks, roll out their groups, learn from them, publish the weights."""
        parts, step = self._parts, self.step + 1
        before = parts.crew.engine_stats()
        with parts.clock.step():
            with parts.clock.phase("generate"):
                taken, result = await parts.waves.take(
                    parts.stream, training_wave(parts.spec, step)
                )
            chosen, batch = self._batch(step, taken)
            ages = staleness_metrics(
                taken,
                version=parts.crew.learner.version,
                bound=parts.spec.schedule.max_staleness_steps,
            )
            parts.journal.emit(PhaseStarted, step=step, phase="train")
            with parts.clock.phase("policy_train"):
                metrics = ages | await parts.crew.learner.step(batch)
            parts.clock.split("policy_train", SCORING, metrics.pop(f"timing/{SCORING}"))
            with parts.clock.phase("sync_weights"):
                metrics |= await self._sync_weights(step)
        metrics |= feed_back(parts.sampler, parts.journal, step, result.groups)
        self.step, self._drawn = step, self._draw_state()
        if chosen.gave_up:
            self._warn("dynamic_sampling_gave_up", chosen.gave_up)
        if not batch.num_sequences:
            self._warn("no_signal", why_nothing_is_learned(chosen.groups, batch))
        metrics |= {**batch.metrics, **chosen.metrics}
        parts.reporter.report(
            step, result, metrics | engine_metrics(before, parts.crew.engine_stats())
        )

    def _batch(self, step: int, taken: Taken) -> tuple[Chosen, Batch]:
        """Choose what the step learns from, and make the learner's input of it."""
        spec, clock = self._parts.spec, self._parts.clock
        seed = derive_seed(spec.schedule.seed, "batch", step)
        with clock.phase("convert_to_training_input"):
            chosen = choose(
                as_groups(taken.groups),
                as_groups(taken.dropped),
                rule=spec.algorithm.dynamic_sampling,
                seed=derive_seed(spec.schedule.seed, "replace", step),
            )
        with clock.phase("compute_advantages_and_returns"):
            judged = judge(chosen.groups, spec.algorithm, seed=seed)
        with clock.phase("convert_to_training_input"):
            plan = BatchPlan(
                mini_batch_size=spec.schedule.mini_batch_size,
                temperatures=training_temperatures(spec),
                seed=seed,
            )
            return chosen, build_batch(judged, spec.algorithm, plan)

    async def _sync_weights(self, step: int) -> dict[str, float]:
        """Hand the learner's weights to every engine and prove that they arrived."""
        parts = self._parts
        parts.journal.emit(PhaseStarted, step=step, phase="sync")
        await parts.crew.weights.sync()
        gap = await self._canary()
        self._tell_of_deaths(step)
        return {"policy/canary_logprobs_abs_diff_mean": gap}

    async def _canary(self) -> float:
        """Return the largest gap between an engine and the learner (nats); see `canary_gap`."""
        parts = self._parts
        tolerance = parts.crew.canary_tolerance or canary_tolerance(
            parts.spec.learner.policy_dtype, parts.spec.engine.dtype
        )
        gaps = [
            await canary_gap(engine, parts.crew.learner, parts.canary_tokens, tolerance=tolerance)
            for engine in parts.crew.engines
        ]
        return max(gaps)

    def _tell_of_deaths(self, step: int) -> bool:
        """Say which workers died and were started again; return whether any did."""
        notices = self._parts.crew.notices()
        for notice in notices:
            self._parts.journal.emit(
                RunWarning, step=step, code=notice.code, message=notice.message
            )
        return bool(notices)

    async def _check_the_engines(self) -> None:
        """Prove once more that the weights are there, where a worker died in an evaluation.

        After the last one no sync follows that would find an engine started with others.
        """
        async with self._parts.watchdog.step(self.step):
            if self._tell_of_deaths(self.step):
                await self._canary()

    async def _evaluate_when_due(self) -> None:
        is_last = self.step == self._schedule.total
        is_baseline = self._start.is_first and self.step == self._start.step
        due = self._schedule.evaluates_after(self.step)
        if is_baseline and not is_last:
            due = self._parts.spec.eval.before_training
        if not due or self._evaluated_step == self.step:
            return
        with self._parts.clock.evaluation():
            await self._parts.evaluator.run(self.step, is_edge=is_last or is_baseline)
            await self._check_the_engines()
        self._evaluated_step = self.step

    async def _save_when_due(self) -> None:
        if self._schedule.saves_after(self.step):
            await self._save(final=self.step == self._schedule.total)

    async def _save(self, *, final: bool = False) -> None:
        sampler, stream = self._drawn
        position = Position(
            step=self.step,
            sampler=sampler,
            stream=stream,
            evaluated_step=self._evaluated_step,
            final=final,
            ran_s=self._parts.watchdog.ran_s,
        )
        async with self._parts.watchdog.step(self.step, phase="checkpoint"):
            await self._parts.saver.save(position)
        self._is_final_saved = final

    async def _save_last_step(self) -> None:
        """Leave the last completed step in the store, unless it is there already."""
        async with self._parts.watchdog.step(self.step, phase="checkpoint"):
            await self._parts.saver.drain()
            if self.step not in (self._start.step, self._parts.saver.saved_step):
                await self._save()
                await self._parts.saver.drain()

    async def _keep_what_is_done(self, end: TrainerError) -> None:
        """Bring into the store what was done before `end`, which stays why the run ends.

        Raises:
            AttemptSuperseded: a newer attempt owns the run.
            TrainerError: `end`, because of a StepTimeout where a thread hangs that stores.
        """
        try:
            if self._stands_at_last_step(end):
                await self._save_last_step()
            else:
                async with self._parts.watchdog.step(self.step, phase="checkpoint"):
                    await self._parts.saver.drain()
        except AttemptSuperseded:
            raise
        except StepTimeout as late:
            raise end from late
        except (TrainerError, StoreError) as error:
            _log.warning("after %r, saving did not end well either: %s", end, error)

    def _stands_at_last_step(self, end: TrainerError) -> bool:
        """Whether the learner stands where the last completed step left it, so it can be saved."""
        if isinstance(end, StepTimeout):
            return end.phase in BETWEEN_UPDATES
        return self._parts.journal.phase in BETWEEN_UPDATES and not isinstance(end, StorageFull)

    def _draw_state(self) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
        """Where the order of tasks stands: what is drawn, and what of it no step has taken."""
        return self._parts.sampler.state(), self._parts.stream.state()

    def _warn(self, code: str, message: str) -> None:
        """Warn of the last completed step."""
        self._parts.journal.emit(RunWarning, step=self.step, code=code, message=message)
