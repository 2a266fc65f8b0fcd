"""Worker group with all workers in the trainer's process."""

from __future__ import annotations

from functools import partial

import torch

from trainer.attempt.startup import StartupPhases
from trainer.engines.base import Engine
from trainer.errors import SpecError
from trainer.inputs.model.directory import load_policy
from trainer.learners.inline import InlineLearner
from trainer.rollouts.worker import RolloutWorker
from trainer.weights.base import WeightSync
from trainer.weights.file_system import LoadsFile
from trainer.weights.local import InlineSync, UpdatesWeights
from trainer.workers.factory import WorkerFactory
from trainer.workers.group import SamplingWorkers, WorkerGroup, weight_sync


def local_workers(factory: WorkerFactory, startup: StartupPhases) -> WorkerGroup:
    """Make all workers in this process.

    Raises:
        SpecError: the spec does not fit a single process.
        ModelUnavailable: the model cannot be loaded.
        EngineError: the engine did not start.
    """
    if torch.cuda.is_available():
        raise SpecError(
            "placement.type inline, which a deterministic run has, trains on the processor, and"
            " this machine has a GPU: hide the GPU (CUDA_VISIBLE_DEVICES=), or set it to ray (with"
            " Ray installed) in a run that is not deterministic"
        )
    with startup.phase("weights"):
        learner = InlineLearner(
            load_policy(factory.model_dir, factory.spec.model), factory.learner_options()
        )
    with startup.phase("engines"):
        chosen = factory.make_engine(lambda: learner.publish().weights)
    engine = chosen.engine
    weights: WeightSync
    if isinstance(engine, UpdatesWeights):
        weights = InlineSync(learner, engine)
    elif isinstance(engine, LoadsFile):
        weights = weight_sync(factory, learner, [engine], keep_newest=False)
    else:
        raise TypeError(f"{chosen.name} supports no weight sync")
    with startup.phase("environments"):
        worker = factory.make_rollout_worker(engine)
    return WorkerGroup(
        learner=learner,
        engines=(engine,),
        weights=weights,
        rollout_runner=worker,
        engine_name=chosen.name,
        fallback=chosen.fallback,
        close=partial(_close, worker, engine),
    )


def inline_samplers(factory: WorkerFactory, startup: StartupPhases) -> SamplingWorkers:
    """Make engine and rollouts in this process; the engine keeps the policy's initial weights.

    Raises:
        SpecError, ModelUnavailable, EngineError: as `local_workers`.
    """
    with startup.phase("engines"):
        chosen = factory.make_engine()
    with startup.phase("environments"):
        worker = factory.make_rollout_worker(chosen.engine)
    return SamplingWorkers(
        engines=(chosen.engine,),
        rollout_runner=worker,
        engine_name=chosen.name,
        fallback=chosen.fallback,
        close=partial(_close, worker, chosen.engine),
    )


async def _close(worker: RolloutWorker, engine: Engine) -> None:
    try:
        await worker.close()
    finally:
        await engine.close()
