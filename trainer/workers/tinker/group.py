"""Worker group with engine and learner on a Tinker server, and rollouts in this process."""

from __future__ import annotations

import asyncio

from trainer.attempt.startup import StartupPhases
from trainer.engines.canary import BFLOAT16_TOLERANCE
from trainer.errors import ModelUnavailable, SpecError
from trainer.inputs.model.directory import count_parameters, load_config
from trainer.rollouts.worker import RolloutWorker
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import SamplingWorkers, WorkerGroup
from trainer.workers.tinker.account import account_of
from trainer.workers.tinker.engine import TinkerEngine
from trainer.workers.tinker.learner import TinkerLearner, TinkerOptions
from trainer.workers.tinker.service import ModelRequest, TinkerService
from trainer.workers.tinker.sync import TinkerSync

NAME = "tinker"
"""As `trainer.started` reports the engine."""
CANARY_TOLERANCE = BFLOAT16_TOLERANCE
"""A server does not report the precision of its two sides."""


def tinker_workers(factory: WorkerFactory, startup: StartupPhases) -> WorkerGroup:
    """Open a session, make an adapter on the server, and a rollout worker that samples from it.

    Raises:
        SpecError: there is no key, or the server lacks the model or rank of the spec.
        LearnerError: the server does not answer.
    """
    with startup.phase("server"):
        service = _open(factory)
    try:
        with startup.phase("weights"):
            learner = TinkerLearner(service, _options(factory))
        engine = _engine(factory, service)
        with startup.phase("environments"):
            samplers = _samplers(factory, service, engine)
    except BaseException:
        service.close()
        raise
    return WorkerGroup(
        learner=learner,
        engines=samplers.engines,
        weights=TinkerSync(learner, engine),
        rollout_runner=samplers.rollout_runner,
        engine_name=samplers.engine_name,
        fallback=samplers.fallback,
        close=samplers.close,
        abandon=samplers.abandon,
        canary_tolerance=CANARY_TOLERANCE,
        keep_only=learner.keep_only,
    )


def _open(factory: WorkerFactory) -> TinkerService:
    spec = factory.spec
    tinker = spec.backend.tinker_server
    if tinker is None:
        raise SpecError("backend.type is not tinker")
    request = ModelRequest(
        base_model=tinker.model_for(spec.model.source),
        tinker=tinker,
        max_sequence_length=spec.rollout.max_sequence_length,
        seed=spec.schedule.seed,
        name=f"{factory.attempt_dir.parent.name}-a{factory.attempt}",
    )
    return TinkerService(account_of(tinker, spec), request)


def _options(factory: WorkerFactory) -> TinkerOptions:
    spec = factory.spec
    return TinkerOptions(
        algorithm=spec.algorithm,
        optimizer=spec.optimizer,
        lr_warmup_steps=spec.schedule.lr_warmup_steps,
        total_steps=spec.schedule.total_steps,
        max_sequence_length=spec.rollout.max_sequence_length,
        vocab_size=factory.vocab_size,
        num_parameters=_num_parameters(factory),
        keeps_token_values=spec.learner.store_token_values,
    )


def _num_parameters(factory: WorkerFactory) -> int:
    """Count those of the base model, where it is of a supported family; else return 0."""
    try:
        return count_parameters(load_config(factory.model_dir, factory.spec.model))
    except (SpecError, ModelUnavailable):
        return 0


def _engine(factory: WorkerFactory, service: TinkerService) -> TinkerEngine:
    return TinkerEngine(
        timeout_s=service.timeout_s,
        max_length=factory.spec.rollout.max_sequence_length,
        check=service.watch.check,
    )


def _samplers(
    factory: WorkerFactory, service: TinkerService, engine: TinkerEngine
) -> SamplingWorkers:
    worker = factory.make_rollout_worker(engine)

    async def close() -> None:
        await _close(worker, engine, service)

    return SamplingWorkers(
        engines=(engine,),
        rollout_runner=worker,
        engine_name=NAME,
        fallback=None,
        close=close,
        abandon=service.close,
    )


async def _close(worker: RolloutWorker, engine: TinkerEngine, service: TinkerService) -> None:
    try:
        await worker.close()
    finally:
        await engine.close()
        await asyncio.to_thread(service.close)
