"""Builds the training loop and its parts from a spec."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from hillclimb.blobs.base import StoreError
from hillclimb.environment.base import EnvProvider
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.protocol.events import RunWarning
from hillclimb.protocol.rundir import QUALIFY, RESUME
from hillclimb.spec.run import RunSpec
from trainer.attempt.context import AttemptContext
from trainer.attempt.determinism import make_deterministic
from trainer.attempt.startup import StartupPhases
from trainer.engines.canary import (
    TEXT,
    Canary,
    canary_tolerance,
    num_canary_tokens,
    text_tokens,
)
from trainer.errors import CheckpointError
from trainer.inputs.model.sources import WITHOUT_WEIGHTS, read_vocab_size
from trainer.inputs.tasks.dataset import TaskSets
from trainer.inputs.tasks.sampler import TaskSampler
from trainer.inputs.tasks.sampling import PromptSampling
from trainer.inputs.tasks.sets import load_tasks
from trainer.jobs.assembly import (
    engine_watchdog,
    is_inline,
    load_checked_config,
    prompt_preview,
    refuse_gpu,
    rollout_service,
    worker_factory,
)
from trainer.jobs.startup_event import StartupInfo, emit_started
from trainer.jobs.step_schedule import Schedule
from trainer.jobs.train.checkpoints import Checkpoints, Saved
from trainer.jobs.train.compute import ComputeMeter, read_shape
from trainer.jobs.train.evals.evaluation import Evaluator
from trainer.jobs.train.evals.history import EvalHistory, stored_evals
from trainer.jobs.train.loop import Start, Trainer, TrainerParts
from trainer.jobs.train.qualification.qualifier import Qualifier
from trainer.jobs.train.recovery import Recovery
from trainer.jobs.train.reporting import StepReporter
from trainer.jobs.train.saving import Saver
from trainer.jobs.train.starting_policy import fetch_model
from trainer.rollouts.chat.tokenizer import load_tokenizer
from trainer.rollouts.groups.buffer import BufferOptions, RolloutBuffer
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.resampling import ResamplePolicy
from trainer.rollouts.training_request import training_request
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The tasks, the sampler with their order, and the checkpoint that the run resumes from."""

    tasks: TaskSets
    sampler: TaskSampler
    saved: Saved | None
    recovery: Recovery


def build_trainer(context: AttemptContext, provider: EnvProvider | None = None) -> Trainer:
    """Load model, tasks and checkpoint, emit `trainer.started`, and return the trainer.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        ModelUnavailable: the model's files are missing or cannot be read.
        SpecError: the architecture is not supported, or rollouts may exceed its positions.
        DataError: the tasks cannot be loaded.
        CheckpointError: the checkpoint is missing, torn or does not fit.
    """
    spec = context.spec
    if spec.deterministic:
        make_deterministic(spec.schedule.seed)
    with context.startup.phase("model"):
        model_dir, vocab_size = _fetch_policy(context)
    with context.startup.phase("tasks"):
        tasks = load_tasks(spec, context.store)
    factory = worker_factory(
        context, provider, spec=spec, model_dir=model_dir, vocab_size=vocab_size
    )
    try:
        # Before the workers are placed: a torn checkpoint must not cost the engines' start.
        recovery = Recovery(context=context, qualifier=_qualifier(context, model_dir))
        saved = _fetch_checkpoint(recovery)
        workers = _make_workers(factory, context.startup)
        try:
            return _with_workers(context, workers, tasks, factory, saved, recovery)
        except BaseException:
            workers.abandon()
            raise
    finally:
        shutil.rmtree(context.dir.path / RESUME, ignore_errors=True)


def _fetch_policy(context: AttemptContext) -> tuple[Path, int]:
    """Fetch the starting policy; return its directory and vocabulary size.

    If a Tinker server has the policy, only the tokenizer is fetched, and the server checks the
    lengths.

    Raises:
        ModelUnavailable, SpecError: as `build_trainer`.
    """
    spec = context.spec
    if spec.backend.tinker_server is not None:
        model_dir = fetch_model(context, patterns=WITHOUT_WEIGHTS)
        return model_dir, read_vocab_size(model_dir)
    refuse_gpu(spec, has_gpu=torch.cuda.is_available())
    model_dir = fetch_model(context)
    return model_dir, load_checked_config(spec, model_dir).vocab_size


def _with_workers(
    context: AttemptContext,
    workers: WorkerGroup,
    tasks: TaskSets,
    factory: WorkerFactory,
    saved: Saved | None,
    recovery: Recovery,
) -> Trainer:
    if saved is not None:
        workers.learner.load(context.dir.path / RESUME)
    sampler = _sampler(context, tasks, saved)
    inputs = _Inputs(tasks=tasks, sampler=sampler, saved=saved, recovery=recovery)
    _emit_started(context, inputs, workers)
    for event in recovery.events:
        context.journal.emit(event)
    return Trainer(_parts(context, workers, inputs, factory), _start(context, saved))


def _make_workers(factory: WorkerFactory, startup: StartupPhases) -> WorkerGroup:
    """Start the workers on the backend of the spec."""
    if factory.spec.backend.tinker_server is not None:
        with gc_paused_import():
            from trainer.workers.tinker.group import tinker_workers  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        return tinker_workers(factory, startup)
    if is_inline(factory.spec):
        with gc_paused_import():
            from trainer.workers.local import local_workers  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        return local_workers(factory, startup)
    with startup.phase("imports"), gc_paused_import():
        # Not installed everywhere.
        from trainer.workers.ray.workers import ray_workers  # noqa: PLC0415

    return ray_workers(factory, startup)


def _parts(
    context: AttemptContext, workers: WorkerGroup, inputs: _Inputs, factory: WorkerFactory
) -> TrainerParts:
    spec, tasks = context.spec, inputs.tasks
    service = rollout_service(
        context,
        workers,
        model_dir=factory.model_dir,
        max_infra_error_rate=spec.environment.max_infra_error_rate,
    )
    watchdog = engine_watchdog(context, workers, ran_before_s=_ran_before(context, inputs.saved))
    shape = read_shape(factory.model_dir)
    meter = ComputeMeter(
        read=workers.engine_stats,
        shape=shape,
        is_overlapped=spec.schedule.max_staleness_steps > 0,
    )
    return TrainerParts(
        context=context,
        sampler=inputs.sampler,
        buffer=_buffer(context, service.collector, inputs),
        workers=workers,
        rollout_service=service,
        evaluator=Evaluator(
            context=context,
            tasks=tasks.eval,
            rollout_service=service,
            watchdog=watchdog,
            meter=meter,
            history=_evals_before(context, inputs.saved),
        ),
        reporter=StepReporter(context=context),
        saver=_saver(context, workers, inputs),
        watchdog=watchdog,
        meter=meter,
        canary=_canary(spec, workers, factory, shape),
        prompts=prompt_preview(context, factory, (*tasks.train, *tasks.eval)),
    )


def _canary(
    spec: RunSpec, workers: WorkerGroup, factory: WorkerFactory, shape: ModelShape | None
) -> Canary:
    ids = load_tokenizer(factory.model_dir).encode(TEXT, add_special_tokens=False).ids
    tolerance = workers.canary_tolerance or canary_tolerance(
        spec.learner.policy_dtype, spec.engine.dtype
    )
    count = num_canary_tokens(
        None if shape is None else shape.experts, max_length=spec.rollout.max_sequence_length - 1
    )
    return Canary(text_tokens(ids, factory.vocab_size, count), tolerance=tolerance)


def _saver(context: AttemptContext, workers: WorkerGroup, inputs: _Inputs) -> Saver:
    checkpoints = Checkpoints(
        context.store,
        context.dir,
        config_hash=config_hash(context.spec),
        parent=inputs.saved.key if inputs.saved else None,
        still_current=context.stop.check_superseded,
    )
    return Saver(
        context=context,
        checkpoints=checkpoints,
        learner=workers.learner,
        keep_only=workers.keep_only,
        qualifier=inputs.recovery.qualifier,
    )


def _qualifier(context: AttemptContext, model_dir: Path) -> Qualifier | None:
    """Return the qualifier; None for an evaluation, and where a Tinker server has the state."""
    spec = context.spec
    if spec.kind != "train" or not spec.checkpoints.qualify or spec.backend.tinker_server:
        return None
    folder = context.dir.path / QUALIFY
    return Qualifier(store=context.store, spec=spec, model_dir=model_dir, folder=folder)


def _sampler(context: AttemptContext, tasks: TaskSets, saved: Saved | None) -> TaskSampler:
    spec = context.spec
    size, sampling = spec.schedule.train_batch_size, PromptSampling.of(spec.data)
    if spec.kind == "eval":
        # It draws no tasks, may use others than the checkpoint was trained on, and a dataset for
        # evaluation may have no training tasks.
        return TaskSampler(tasks.eval, 1, spec.data.seed)
    if saved is not None and not _restarts_order(context, saved):
        return TaskSampler.from_state(
            tasks.train,
            saved.manifest.sampler,
            prompts_per_step=size,
            seed=spec.data.seed,
            sampling=sampling,
        )
    return TaskSampler(tasks.train, size, spec.data.seed, sampling)


def _buffer(context: AttemptContext, collector: Collector, inputs: _Inputs) -> RolloutBuffer:
    spec = context.spec
    buffer = RolloutBuffer(
        collector,
        inputs.sampler.next_step,
        lambda ordinal: training_request(spec, ordinal),
        BufferOptions(
            batch_size=spec.schedule.train_batch_size,
            last_step=spec.schedule.total_steps,
            max_staleness_steps=spec.schedule.max_staleness_steps,
            resampling=ResamplePolicy.of(spec.algorithm.dynamic_sampling),
        ),
    )
    if inputs.saved is not None and spec.kind == "train":
        manifest = inputs.saved.manifest
        buffer_state = manifest.buffer or {"num_draws": manifest.step, "pending": []}
        if _restarts_order(context, inputs.saved):
            # The other run's pending tasks are not drawn; its numbers of draws seeded its rollouts.
            buffer_state = buffer_state | {"pending": []}
        buffer.restore(manifest.step, buffer_state, {task.key: task for task in inputs.tasks.train})
    return buffer


def _fetch_checkpoint(recovery: Recovery) -> Saved | None:
    """Fetch the checkpoint and verify every file; None for a fresh start."""
    spec, saved = recovery.context.spec, recovery.fetch()
    step = saved.manifest.step if saved else 0
    if step > Schedule.of(spec, start=step).total:
        raise CheckpointError(
            f"the checkpoint is at step {step}, beyond schedule.total_steps"
            f" ({spec.schedule.total_steps})"
        )
    return saved


def _start(context: AttemptContext, saved: Saved | None) -> Start:
    is_eval = context.spec.kind == "eval"
    if saved is None:
        return Start(is_final=is_eval)
    is_own = _is_own(context, saved)
    return Start(
        step=saved.manifest.step,
        is_first=not is_own,
        evaluated_step=saved.manifest.evaluated_step if is_own else None,
        is_final=is_eval or (is_own and saved.manifest.final),
    )


def _ran_before(context: AttemptContext, saved: Saved | None) -> float:
    return saved.manifest.ran_s if saved is not None and _is_own(context, saved) else 0.0


def _evals_before(context: AttemptContext, saved: Saved | None) -> EvalHistory:
    """Return the evaluations of earlier attempts of the run, if a later one is compared with them.

    Without them, evaluations are complete.
    """
    if saved is None or not _is_own(context, saved) or context.spec.eval.stop_when_decided is None:
        return EvalHistory()
    try:
        return EvalHistory(
            tuple(
                stored_evals(
                    context.store,
                    context.run_id,
                    attempts=context.dir.attempt - 1,
                    last_step=saved.manifest.step,
                )
            )
        )
    except StoreError as error:
        message = f"no evaluation ends early: the earlier ones cannot be read ({error})"
        context.journal.emit(
            RunWarning(step=saved.manifest.step, code="eval_history_missing", message=message)
        )
        return EvalHistory()


def _is_own(context: AttemptContext, saved: Saved) -> bool:
    return saved.manifest.run_id == context.run_id


def _restarts_order(context: AttemptContext, saved: Saved) -> bool:
    """Return True if the tasks are drawn anew: the run's own checkpoints continue its own order."""
    restarts = context.spec.lineage.data_order == "restart"
    return restarts and not _is_own(context, saved)


def _emit_started(context: AttemptContext, inputs: _Inputs, workers: WorkerGroup) -> None:
    saved = inputs.saved
    step = saved.manifest.step if saved else 0
    info = StartupInfo(
        step=step,
        resumed_from_step=step if saved else None,
        engine=workers.engine_name,
        fallback=workers.fallback,
        num_parameters=workers.learner.num_parameters,
        num_train_tasks=len(inputs.tasks.train),
        num_eval_tasks=len(inputs.tasks.eval),
    )
    emit_started(context, info)
    if saved is None or not _is_own(context, saved):
        return
    if saved.manifest.config_hash != config_hash(context.spec):
        message = "the checkpoint was trained under another configuration of this run"
        context.journal.emit(RunWarning(step=step, code="config_changed", message=message))
