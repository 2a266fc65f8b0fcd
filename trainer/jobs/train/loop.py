"""The training loop: the algorithm on one screen, in `Trainer.train` and `Trainer._train_step`."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.blobs.base import StoreError
from hillclimb.protocol.events import PhaseStarted, RunWarning, StepAbandoned
from hillclimb.spec.backend.counts import counted
from trainer.algo.batch import BatchPlan, build_batch, learned_rollouts, score_groups
from trainer.algo.dynamic import SelectedGroups, select_groups
from trainer.algo.sequences import Batch
from trainer.algo.signal import ScoredGroup, why_nothing_is_learned
from trainer.attempt.context import AttemptContext
from trainer.attempt.stop_signal import StopRequested
from trainer.attempt.timing import SCORING
from trainer.attempt.watchdog import Watchdog
from trainer.engines.canary import Canary
from trainer.errors import (
    AttemptSuperseded,
    EnvironmentOutage,
    RunTimeout,
    StepTimeout,
    StorageFull,
    TrainerError,
)
from trainer.inputs.tasks.sampler import TaskSampler
from trainer.jobs.prompt_preview import PromptPreview
from trainer.jobs.rollout_service import RolloutResults, RolloutService
from trainer.jobs.step_schedule import Schedule
from trainer.jobs.train.checkpoints import Position
from trainer.jobs.train.compute import ComputeMeter
from trainer.jobs.train.evals.evaluation import Evaluator
from trainer.jobs.train.feedback import feed_back
from trainer.jobs.train.reporting import StepReporter, engine_metrics
from trainer.jobs.train.saving import Saver
from trainer.rollouts.groups.buffer import RolloutBatch, RolloutBuffer
from trainer.rollouts.groups.collector import as_groups
from trainer.rollouts.groups.staleness_metrics import staleness_metrics
from trainer.rollouts.request import RolloutRequest
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.training_request import training_request, training_temperatures
from trainer.workers.group import WorkerGroup

BETWEEN_UPDATES = ("rollout", "eval")
"""Phases, as in `PhaseStarted`, in which the learner is in the state of the last completed step."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerParts:
    """Parts of the training loop; each is built once per process."""

    context: AttemptContext
    sampler: TaskSampler
    buffer: RolloutBuffer
    workers: WorkerGroup
    rollout_service: RolloutService
    evaluator: Evaluator
    reporter: StepReporter
    saver: Saver
    watchdog: Watchdog
    meter: ComputeMeter
    canary: Canary
    prompts: PromptPreview


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start of training: at step 0, or at the step of a checkpoint."""

    step: int = 0
    is_first: bool = True
    """False when an earlier attempt of this run has trained before."""
    evaluated_step: int | None = None
    """Step of this run's last complete evaluation."""
    is_final: bool = False
    """True when nothing is left to save: the run resumes from its final checkpoint, or it only
    evaluates."""


class Trainer:
    """Trains one run from `start` to its last step; `step` is the last one completed."""

    def __init__(self, parts: TrainerParts, start: Start) -> None:
        self._parts = parts
        self._start = start
        self._context = parts.context
        self._spec = parts.context.spec
        self._schedule = Schedule.of(self._spec, start=start.step)
        self._order = self._task_order()
        self._is_final_saved = start.is_final
        self._evaluated_step = start.evaluated_step
        self.step = start.step

    async def train(self) -> None:
        """Train, evaluate and save until the last step is done.

        Raises:
            StopRequested: stopped on request; the last completed step is saved.
            EnvironmentOutage: environments fail; the last completed step is saved.
            RunTimeout: the run's time is over; the last completed step is saved.
            TrainerError: the run cannot go on, or a step hangs; the pending save is complete, and
                the last completed step is saved if the learner is in its state.
        """
        watchdog = self._parts.watchdog
        watchdog.watch_run()
        await self._context.stop.race(self._parts.prompts.emit(self.step))
        try:
            async with watchdog.step(self.step):
                await self._sync_weights(self.step)
            await self._evaluate_when_due()
            while self.step < self._schedule.total:
                self._context.stop.check()
                async with watchdog.step(self.step + 1):
                    await self._train_step()
                await self._evaluate_when_due()
                await self._save_when_due()
            if not self._is_final_saved:
                await self._save(final=True)
        except (StopRequested, EnvironmentOutage, RunTimeout):
            self._report_abandoned()
            await self._save_last_step()
            raise
        except AttemptSuperseded:
            raise
        except TrainerError as error:
            self._report_abandoned()
            await self._save_after_failure(error)
            raise

    def summary(self) -> str:
        """Return the result in a few words."""
        if self._spec.kind == "eval":
            return f"evaluated step {self.step}"
        return f"trained {counted(self._schedule.total, 'step')}"

    async def close(self) -> None:
        """Stop saving, the rollout buffer and the workers."""
        try:
            await self._finish_saving()
        finally:
            # Cancelled or not: other processes must not outlive this one.
            await self._close_workers()

    async def _finish_saving(self) -> None:
        try:
            await self._parts.saver.drain()
        except (TrainerError, StoreError) as error:
            # The run has ended for another reason already.
            _log.warning("the last save failed: %s", error)
        finally:
            await self._parts.saver.close()
        await self._parts.rollout_service.close()

    async def _close_workers(self) -> None:
        try:
            await self._parts.buffer.close()
        finally:
            await self._parts.workers.close()

    async def _train_step(self) -> None:
        """Sample tasks, run their rollouts, update the policy, sync the weights."""
        parts, context, step = self._parts, self._context, self.step + 1
        before = parts.workers.engine_stats()
        request = training_request(self._spec, step)
        with context.clock.step():
            with context.clock.phase("generate"):
                rollouts, result = await parts.rollout_service.next_batch(parts.buffer, request)
            selected, scored, batch = self._training_batch(step, rollouts)
            version = parts.workers.learner.version
            staleness = staleness_metrics(
                rollouts, version=version, bound=self._spec.schedule.max_staleness_steps
            )
            context.journal.emit(PhaseStarted(step=step, phase="train"))
            with context.clock.phase("policy_train"):
                metrics = staleness | await parts.workers.learner.step(batch)
            context.clock.split("policy_train", SCORING, metrics.pop(f"timing/{SCORING}"))
            with context.clock.phase("store_token_values"):
                await parts.rollout_service.settle()
                await self._store_token_values(result, request, batch, version)
            with context.clock.phase("sync_weights"):
                metrics |= await self._sync_weights(step)
        metrics |= feed_back(parts.sampler, context.journal, step, result.outcomes_by_group)
        self.step, self._order = step, self._task_order()
        if selected.gave_up:
            self._warn("dynamic_sampling_gave_up", selected.gave_up)
        if not batch.num_sequences:
            self._warn("no_signal", why_nothing_is_learned(selected.groups, batch))
        metrics |= {**batch.metrics, **selected.metrics}
        compute = parts.meter.of_step(
            result,
            rollouts.dropped,
            learned=learned_rollouts(scored, self._spec.algorithm),
            batch=batch,
            metrics=metrics,
        )
        metrics |= engine_metrics(before, parts.workers.engine_stats())
        parts.reporter.report(step, result, metrics, compute)

    async def _store_token_values(
        self, result: RolloutResults, request: RolloutRequest, batch: Batch, version: int
    ) -> None:
        """Store what the learner of `version` computed for each token, if the spec wants that."""
        if not self._spec.learner.store_token_values:
            return
        values = await self._parts.workers.learner.take_token_values()
        await self._parts.rollout_service.store_token_values(
            result, request, batch, values, version=version
        )

    def _report_abandoned(self) -> None:
        """Report the compute of the step or evaluation under way, which ends without a report."""
        compute = self._parts.meter.remainder()
        if compute is None:
            return
        is_eval = self._context.journal.phase == "eval"
        self._context.journal.emit(
            StepAbandoned(
                step=self.step if is_eval else self.step + 1,
                during="eval" if is_eval else "train",
                compute=compute,
            )
        )

    def _training_batch(
        self, step: int, rollouts: RolloutBatch
    ) -> tuple[SelectedGroups, list[ScoredGroup], Batch]:
        """Select and score the groups that the step learns from, and build the learner's batch."""
        spec, clock = self._spec, self._context.clock
        seed = derive_seed(spec.schedule.seed, "batch", step)
        with clock.phase("convert_to_training_input"):
            selected = select_groups(
                as_groups(rollouts.groups),
                as_groups(rollouts.dropped),
                rule=spec.algorithm.dynamic_sampling,
                seed=derive_seed(spec.schedule.seed, "replace", step),
            )
        with clock.phase("compute_advantages_and_returns"):
            scored = score_groups(selected.groups, spec.algorithm, seed=seed)
        with clock.phase("convert_to_training_input"):
            plan = BatchPlan(
                mini_batch_size=spec.schedule.mini_batch_size,
                temperatures=training_temperatures(spec),
                seed=seed,
            )
            return selected, scored, build_batch(scored, spec.algorithm, plan)

    async def _sync_weights(self, step: int) -> dict[str, float]:
        """Sync the learner's weights to every engine and check them by the canary."""
        parts = self._parts
        self._context.journal.emit(PhaseStarted(step=step, phase="sync"))
        await parts.canary.score(parts.workers.learner)
        await parts.workers.weights.sync()
        gap = await parts.canary.gap(parts.workers.engines)
        self._emit_restart_warnings(step)
        return {"policy/canary_logprobs_abs_diff_mean": gap}

    def _emit_restart_warnings(self, step: int) -> bool:
        """Warn of each restarted worker; return whether there was one."""
        restarts = self._parts.workers.notices()
        for restart in restarts:
            self._context.journal.emit(
                RunWarning(step=step, code=restart.code, message=restart.message)
            )
        return bool(restarts)

    async def _check_engines(self) -> None:
        """Repeat the canary if a worker restarted during an evaluation.

        No sync follows the last evaluation that would find a restarted engine with other weights.
        """
        async with self._parts.watchdog.step(self.step):
            if self._emit_restart_warnings(self.step):
                await self._parts.canary.gap(self._parts.workers.engines)

    async def _evaluate_when_due(self) -> None:
        is_last = self.step == self._schedule.total
        is_baseline = self._start.is_first and self.step == self._start.step
        is_due = self._schedule.evaluates_after(self.step)
        if is_baseline and not is_last:
            is_due = self._spec.eval.before_training
        has_tasks = bool(self._parts.evaluator.tasks)  # a test by data.max_tasks may have none
        if not is_due or not has_tasks or self._evaluated_step == self.step:
            return
        with self._context.clock.evaluation():
            await self._parts.evaluator.run(self.step, is_edge=is_last or is_baseline)
            await self._check_engines()
        self._evaluated_step = self.step

    async def _save_when_due(self) -> None:
        if self._schedule.saves_after(self.step):
            await self._save(final=self.step == self._schedule.total)

    async def _save(self, *, final: bool = False) -> None:
        sampler, buffer = self._order
        position = Position(
            step=self.step,
            sampler=sampler,
            buffer=buffer,
            evaluated_step=self._evaluated_step,
            final=final,
            ran_s=self._parts.watchdog.ran_s,
        )
        async with self._parts.watchdog.step(self.step, phase="checkpoint"):
            await self._parts.saver.save(position)
        self._is_final_saved = final

    async def _save_last_step(self) -> None:
        """Save the last completed step, unless it is saved already."""
        async with self._parts.watchdog.step(self.step, phase="checkpoint"):
            await self._parts.saver.drain()
            if self.step not in (self._start.step, self._parts.saver.saved_step):
                await self._save()
                await self._parts.saver.drain()

    async def _save_after_failure(self, failure: TrainerError) -> None:
        """Save the last completed step before the run ends with `failure`.

        Raises:
            AttemptSuperseded: a newer attempt owns the run.
            TrainerError: `failure`, caused by a StepTimeout if an uploading thread hangs.
        """
        try:
            if self._is_at_last_step(failure):
                await self._save_last_step()
            else:
                async with self._parts.watchdog.step(self.step, phase="checkpoint"):
                    await self._parts.saver.drain()
        except AttemptSuperseded:
            raise
        except StepTimeout as timeout:
            raise failure from timeout
        except (TrainerError, StoreError) as error:
            _log.warning("after %r, saving failed too: %s", failure, error)

    def _is_at_last_step(self, failure: TrainerError) -> bool:
        """True if the learner is in the state of the last completed step, so it can be saved."""
        if isinstance(failure, StepTimeout):
            return failure.phase in BETWEEN_UPDATES
        is_between = self._context.journal.phase in BETWEEN_UPDATES
        return is_between and not isinstance(failure, StorageFull)

    def _task_order(self) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
        """Return the states of the task sampler and of the rollout buffer."""
        return self._parts.sampler.state(), self._parts.buffer.state()

    def _warn(self, code: str, message: str) -> None:
        """Emit a warning for the last completed step."""
        self._context.journal.emit(RunWarning(step=self.step, code=code, message=message))
