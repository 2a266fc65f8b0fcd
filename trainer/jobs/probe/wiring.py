"""Builds a probe from a spec: the engines and rollouts of a training run, without its learner."""

from __future__ import annotations

from pathlib import Path

import torch

from hillclimb.environment.base import EnvProvider
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.protocol.rundir import POLICY, RESUME
from hillclimb.spec.run import RunSpec
from trainer.attempt.context import AttemptContext
from trainer.attempt.determinism import make_deterministic
from trainer.attempt.startup import StartupPhases
from trainer.attempt.watchdog import PARTIAL_REPORT
from trainer.inputs.tasks.sets import some_train_tasks
from trainer.jobs.assembly import (
    engine_watchdog,
    is_inline,
    load_checked_config,
    prompt_preview,
    refuse_gpu,
    rollout_service,
    worker_factory,
)
from trainer.jobs.probe.prober import ProbeParts, Prober
from trainer.jobs.startup_event import StartupInfo, emit_started
from trainer.jobs.train.checkpoints import Saved, fetch
from trainer.jobs.train.starting_policy import fetch_model
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import SamplingWorkers


def build_prober(context: AttemptContext, provider: EnvProvider | None = None) -> Prober:
    """Load model and tasks, emit `trainer.started`, and return the probe.

    `provider` serves the environments instead of the one that the spec names.

    Raises:
        ModelUnavailable, SpecError, DataError, CheckpointError: as `build_trainer`.
    """
    spec = context.spec
    if spec.deterministic:
        make_deterministic(spec.schedule.seed)
    refuse_gpu(spec, has_gpu=torch.cuda.is_available())
    with context.startup.phase("model"):
        model_dir, saved = _fetch_policy(context)
        config = load_checked_config(spec, model_dir)
    with gc_paused_import():
        from trainer.inputs.model.directory import count_parameters  # noqa: PLC0415 - hillclimb.process.lazy_imports
    with context.startup.phase("tasks"):
        tasks = some_train_tasks(spec, context.store, spec.probe.tasks_per_env)
    factory = worker_factory(
        context,
        provider,
        spec=_without_learner(spec),
        model_dir=model_dir,
        vocab_size=config.vocab_size,
    )
    samplers = _make_samplers(factory, context.startup)
    try:
        step = saved.manifest.step if saved else 0
        info = StartupInfo(
            step=step,
            resumed_from_step=step if saved else None,
            engine=samplers.engine_name,
            fallback=samplers.fallback,
            num_parameters=count_parameters(config),
            num_train_tasks=len(tasks),
            num_eval_tasks=0,
        )
        emit_started(context, info)
        parts = ProbeParts(
            context=context,
            tasks=tasks,
            samplers=samplers,
            # A probe reports failing environments; it does not end because of one.
            rollout_service=rollout_service(
                context, samplers, model_dir=model_dir, max_infra_error_rate=1.0
            ),
            watchdog=engine_watchdog(context, samplers, remainder=PARTIAL_REPORT),
            prompts=prompt_preview(context, factory, tasks),
        )
        return Prober(parts, step=step)
    except BaseException:
        samplers.abandon()
        raise


def _fetch_policy(context: AttemptContext) -> tuple[Path, Saved | None]:
    """Fetch the policy to probe, from the checkpoint if there is one; return its directory."""
    if context.resume_from is None:
        return fetch_model(context), None
    directory = context.dir.path / RESUME
    key, manifests = context.resume_from, context.manifests
    saved = fetch(context.store, key, directory, only=f"{POLICY}/", manifests=manifests)
    return directory / POLICY, saved


def _without_learner(spec: RunSpec) -> RunSpec:
    """Return the spec for engines that keep their starting weights."""
    engine = spec.engine.model_copy(update={"weight_transport": "auto"})
    learner = spec.learner.model_copy(update={"lora": None})
    return spec.model_copy(update={"engine": engine, "learner": learner})


def _make_samplers(factory: WorkerFactory, startup: StartupPhases) -> SamplingWorkers:
    """Start the sampling workers on the placement of the spec."""
    if is_inline(factory.spec):
        with gc_paused_import():
            from trainer.workers.local import inline_samplers  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        return inline_samplers(factory, startup)
    with startup.phase("imports"), gc_paused_import():
        # Not installed everywhere.
        from trainer.workers.ray.workers import ray_samplers  # noqa: PLC0415

    return ray_samplers(factory, startup)
