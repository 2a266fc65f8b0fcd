"""Chooses and makes the engine that a run samples with."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hillclimb.hardware.model.linear_attention import NO_ADAPTERS
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.engine import EngineSpec
from trainer.engines.base import Engine
from trainer.engines.vllm.options import VllmOptions
from trainer.engines.vllm.template import begin_imports, end_imports
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import gpu_versions, library_versions, require_accepted

if TYPE_CHECKING:
    from trainer.inputs.model.families.family import CausalLMConfig

Weights = Mapping[str, torch.Tensor]
_VLLM_ENGINE, _VLLM_BUILDS = "trainer.engines.vllm.engine", "trainer.engines.vllm.builds"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEngine:
    """An engine, with its name and the reason for a fallback."""

    engine: Engine
    name: str
    """As `trainer.started` reports it."""
    fallback: str | None = None
    """Reason why `auto` did not choose vLLM; None where it did."""


def choose_engine(
    spec: RunSpec, config: CausalLMConfig, model_dir: Path, weights: Callable[[], Weights]
) -> ChosenEngine:
    """Make the engine of the spec's section `engine`; the first sync gives it its weights.

    vLLM reads `model_dir` itself; `weights` are what the torch engine starts with.

    Raises:
        SpecError: the engine is not installed, or its cache does not fit the memory.
        EngineError: the engine did not start.
    """
    missing = why_not_vllm(config, spec.engine.dtype) if spec.engine.type != "torch" else None
    if spec.engine.type != "torch" and missing is None and spec.learner.routing_replay:
        missing = _why_no_routes()
    if spec.engine.type == "torch" or (missing and spec.engine.type == "auto"):
        if spec.engine.dtype != "float32":
            raise SpecError(f"engine.dtype {spec.engine.dtype} needs vLLM, but {missing}")
        engine = _torch(spec, config, weights())
        return ChosenEngine(engine=engine, name="torch", fallback=missing)
    if missing:
        raise SpecError(f"engine.type is vllm, but {missing}")
    return ChosenEngine(engine=_vllm(spec, config, model_dir), name="vllm")


def why_not_vllm(config: CausalLMConfig, dtype: str) -> str | None:
    """Return the reason why vLLM cannot sample this model here in `dtype`; None when it can."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    try:
        begin_imports()
        with gc_paused_import():
            importlib.import_module(_VLLM_ENGINE)
    except (ImportError, OSError, RuntimeError) as fault:
        # A build for another machine fails in many ways, all of them at import.
        _log.warning("vLLM does not import", exc_info=fault)
        end_imports()
        return f"vLLM does not import: {fault}"
    refused: str | None = importlib.import_module(_VLLM_BUILDS).why_not(config, dtype)
    if refused:
        end_imports()
    return refused


def _why_no_routes() -> str | None:
    """Return why vLLM, which runs here, cannot return the experts of a token; None if it can."""
    refused: str | None = importlib.import_module(_VLLM_BUILDS).why_no_routes()
    if refused:
        end_imports()
    return refused


def _vllm(spec: RunSpec, config: CausalLMConfig, model_dir: Path) -> Engine:
    if torch.cuda.is_available():
        present = gpu_versions() | library_versions("vllm")
        require_accepted(
            spec,
            "gpu",
            subject=present["gpu"],
            present=present,
            never="no run with the locked versions of torch and vLLM has sampled on a GPU",
            instead="hide the GPU (CUDA_VISIBLE_DEVICES=)",
        )
    setting = spec.engine.cache_needs_gpu
    if setting and not torch.cuda.is_available():
        raise SpecError(f"{setting} needs a GPU, and this machine has none: leave it out")
    # Both engines take seconds to import (`hillclimb.process.lazy_imports`), and vLLM is not
    # installed everywhere.
    from trainer.engines.vllm.builds import why_no_adapters  # noqa: PLC0415
    from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415

    options = _options(spec, config, model_dir)
    if options.lora_rank is not None and options.has_linear_attention:
        raise SpecError(NO_ADAPTERS)
    if (why := why_no_adapters(options)) is not None:
        raise SpecError(why)
    return VllmEngine(options)


def _options(spec: RunSpec, config: CausalLMConfig, model_dir: Path) -> VllmOptions:
    from trainer.inputs.model.families.registry import experts_of, family_of  # noqa: PLC0415 - as above

    engine: EngineSpec = spec.engine
    family = family_of(config)
    raw = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    lora = spec.learner.lora if engine.weight_transport == "lora" else None
    return VllmOptions(
        model_dir=model_dir,
        max_length=spec.rollout.max_sequence_length,
        num_sessions=spec.environment.max_concurrent_rollouts,
        architecture=family.architecture,
        has_linear_attention=family.has_linear_attention,
        is_text_half="text_config" in raw,
        dtype=engine.dtype,
        positions={
            name: config.to_dict()[name] for name in ("rope_parameters", "max_position_embeddings")
        },
        kv_cache_gib=engine.kv_cache_gib,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        kv_cache_dtype=engine.kv_cache_dtype,
        kv_offload_gib=engine.kv_offload_gib,
        tensor_parallel_size=engine.tensor_parallel_size,
        by_chunks=engine.is_direct,
        returns_routes=spec.learner.routing_replay,
        sleeps=spec.placement.colocate,
        lora_rank=None if lora is None else lora.rank,
        # Of experts vLLM would keep adapters of zeros, and multiply with them.
        lora_modules=() if lora is None or not experts_of(config) else lora.target_modules,
    )


def _torch(spec: RunSpec, config: CausalLMConfig, weights: Weights) -> Engine:
    with gc_paused_import():
        from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions  # noqa: PLC0415 - as above
    options = TorchEngineOptions(
        num_sessions=spec.environment.max_concurrent_rollouts,
        max_length=spec.rollout.max_sequence_length,
        num_rollouts=spec.environment.max_concurrent_rollouts,
        records_routes=spec.learner.routing_replay,
    )
    try:
        return TorchEngine(config, weights, options=options)
    except (RuntimeError, MemoryError) as fault:
        # torch has no error class of its own for this; nothing else in there can fail so.
        raise SpecError(
            f"the cache of {options.num_sessions} rollouts of {options.max_length} tokens does not"
            " fit the memory: lower environment.max_concurrent_rollouts or"
            " rollout.max_sequence_length"
        ) from fault
