"""Which engine a run samples with, made and wired to its learner."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Qwen3Config

from trainer.contract.sections import EngineSpec
from trainer.contract.spec import RunSpec
from trainer.engines.base import Engine
from trainer.engines.torch import TorchEngine, TorchEngineOptions
from trainer.engines.vllm.options import ENVIRONMENT, VllmOptions
from trainer.errors import SpecError
from trainer.learners.inline import InlineLearner
from trainer.weights.base import WeightSync
from trainer.weights.file import FileSync, shared_directory
from trainer.weights.inline import InlineSync

_VLLM_ENGINE = "trainer.engines.vllm.engine"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEngine:
    """An engine with the way its weights come in."""

    engine: Engine
    weights: WeightSync
    name: str
    """As `trainer.started` reports it."""
    fallback: str | None = None
    """Why `auto` did not take vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run's engine finds its files."""

    model_dir: Path
    """Hugging Face directory of the policy that the run starts from."""
    attempt_dir: Path
    run: str
    """Name of the run: that of its part of the shared memory."""


def choose_engine(
    spec: RunSpec, config: Qwen3Config, learner: InlineLearner, place: Place
) -> ChosenEngine:
    """Make the engine that `engine` of the spec asks for; the first sync gives it its weights.

    Raises:
        SpecError: the engine is not installed, or its cache does not fit the memory.
        EngineError: the engine did not start.
    """
    missing = why_not_vllm(config) if spec.engine.type != "torch" else None
    if spec.engine.type == "torch" or (missing and spec.engine.type == "auto"):
        if spec.engine.dtype != "float32":
            raise SpecError(f"engine.dtype {spec.engine.dtype} needs vLLM, but {missing}")
        engine = _torch(spec, config, learner)
        return ChosenEngine(
            engine=engine,
            weights=InlineSync(learner, engine),
            name="torch",
            fallback=missing,
        )
    if missing:
        raise SpecError(f"engine.type is vllm, but {missing}")
    return _vllm(spec, config, learner, place)


def why_not_vllm(config: Qwen3Config) -> str | None:
    """Say why vLLM cannot sample this model here; None when it can."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    os.environ.update(ENVIRONMENT)
    try:
        engine = importlib.import_module(_VLLM_ENGINE)
    except (ImportError, OSError, RuntimeError) as fault:
        # A build for another machine fails in many ways, all of them at import.
        _log.warning("vLLM does not import", exc_info=fault)
        return f"vLLM does not import: {fault}"
    refused: str | None = engine.why_not(config)
    return refused


def _vllm(spec: RunSpec, config: Qwen3Config, learner: InlineLearner, place: Place) -> ChosenEngine:
    if torch.cuda.is_available() and not spec.experimental:
        raise SpecError("vLLM on a GPU was never run: set experimental to true to try it")
    # vLLM takes seconds to import, and is not installed everywhere.
    from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415

    engine = VllmEngine(_options(spec, config, place.model_dir))
    directory = (
        place.attempt_dir / "weights"
        if spec.engine.weight_transport == "disk"
        else shared_directory(place.run)
    )
    return ChosenEngine(engine=engine, weights=FileSync(learner, [engine], directory), name="vllm")


def _options(spec: RunSpec, config: Qwen3Config, model_dir: Path) -> VllmOptions:
    engine: EngineSpec = spec.engine
    return VllmOptions(
        model_dir=model_dir,
        max_length=spec.rollout.max_sequence_length,
        num_sessions=spec.environment.max_concurrent_rollouts,
        dtype=engine.dtype,
        positions={
            name: config.to_dict()[name] for name in ("rope_parameters", "max_position_embeddings")
        },
        kv_cache_gib=engine.kv_cache_gib,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        tensor_parallel_size=engine.tensor_parallel_size,
    )


def _torch(spec: RunSpec, config: Qwen3Config, learner: InlineLearner) -> TorchEngine:
    options = TorchEngineOptions(
        num_sessions=spec.environment.max_concurrent_rollouts,
        max_length=spec.rollout.max_sequence_length,
    )
    try:
        return TorchEngine(
            config, learner.publish().weights, version=learner.version, options=options
        )
    except (RuntimeError, MemoryError) as fault:
        # torch has no error class of its own for this; nothing else in there can fail so.
        raise SpecError(
            f"the cache of {options.num_sessions} rollouts of {options.max_length} tokens does not"
            " fit the memory: lower environment.max_concurrent_rollouts or"
            " rollout.max_sequence_length"
        ) from fault
