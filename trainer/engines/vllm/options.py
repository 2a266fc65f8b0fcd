"""Options of a vLLM engine, and its processes' environment; vLLM itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from hillclimb.hardware.memory.engine import batched_tokens

ENVIRONMENT = {
    # Two spinning OpenMP threads that share their cores with anything else make vLLM up to a
    # hundred times slower (measured); one thread, bound to nothing, does not have that problem.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # On a GPU vLLM would compile FlashInfer's sampler with nvcc at the first start, for its warm-up
    # alone: that sampler has no processed log-probs, so no request of ours is drawn by it. Engines
    # that served on an H100 ran so.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # Lets one process schedule and compute also on a CPU (`distributed_executor_backend` below).
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Set before vLLM starts, in the process that starts it; its own children inherit it."""
EXACT = {
    # vLLM's attention names no precision for its products of matrices, and Triton's default for
    # float32 is TF32, with ten bits of mantissa. Where there is no Triton it changes nothing.
    "TRITON_F32_DEFAULT": "ieee",
}
"""Set too for an engine in float32."""
TEXT_HALF = "HILLCLIMB_VLLM_TEXT_HALF"
"""Variable that is set where the model is one of `trainer.engines.vllm.text_half`."""
CPU_ENVIRONMENT = {
    # What vLLM compiles even in eager mode (how log-probs are picked) takes two seconds at an
    # engine's first request; later ones were as fast without it (measured).
    "TORCHDYNAMO_DISABLE": "1",
}
"""Set too where there is no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """Sizes and precision of one engine; picklable, so that another process can make it."""

    model_dir: Path
    """Hugging Face directory; only the first weights come from there."""
    max_length: int
    """Longest sequence (tokens)."""
    num_sessions: int
    """Requests decoded as one batch (count)."""
    version: int = 0
    """Version of the weights in `model_dir`."""
    architecture: str = "Qwen3ForCausalLM"
    """As `trainer.inputs.model.families` names the model's."""
    has_linear_attention: bool = False
    """Some layers have a state per sequence in place of keys and values per token."""
    is_text_half: bool = False
    """`model_dir` holds more than text, and the text model's config in a section of its own."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    positions: Mapping[str, JsonValue] = field(default_factory=dict)
    """As `trainer.inputs.model.rope.resolve_rope` has them; empty keeps the model's own."""
    kv_cache_gib: int = 1
    """Memory of the cache on a CPU (GiB); on a GPU `gpu_memory_utilization` decides."""
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    kv_offload_gib: int = 0
    """Main memory for evicted parts of the cache (GiB)."""
    tensor_parallel_size: int = 1
    sleeps: bool = False
    """It leaves its GPU to the learner between two rounds of rollouts."""
    lora_rank: int | None = None
    """Rank of the adapters that `load_weights_file` gets; None where it gets whole weights."""
    lora_modules: tuple[str, ...] = ()
    """Layers that vLLM prepares for an adapter; empty: all that can have one, experts too."""
    returns_routes: bool = False
    """Return the experts of each token; only a build for GPUs can."""
    by_chunks: bool = False
    """Weights come as chunks from the learner's processes (`load_chunk`), not in files."""

    def environment(self) -> dict[str, str]:
        """Variables for the process that makes the engine."""
        own = dict(EXACT) if self.dtype == "float32" else {}
        if self.has_linear_attention:
            own[TEXT_HALF] = "1"
        return ENVIRONMENT | own | {"VLLM_CPU_KVCACHE_SPACE": str(self.kv_cache_gib)}

    def whole_prompts(self) -> dict[str, Any]:
        """Arguments with which vLLM computes every prompt in one pass."""
        return {
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(self.max_length, self._batched_tokens()),
        }

    def _batched_tokens(self) -> int:
        return batched_tokens(self.num_sessions, self.max_length)

    def overrides(self) -> dict[str, Any]:
        """Changes of the model's config."""
        positions = {"text_config": dict(self.positions)} if self.is_text_half else self.positions
        return {"architectures": [self.architecture], **positions}

    def _exact_head(self) -> dict[str, Any]:
        """Keep scores over the vocabulary in float32, as the learner does on a GPU."""
        return {"head_dtype": "float32"} if self.dtype == "bfloat16" else {}

    def engine_arguments(self) -> dict[str, Any]:
        """Keyword arguments of vLLM's `AsyncEngineArgs`."""
        optional: dict[str, Any] = {}
        if self.lora_rank is not None:
            rank = next(rank for rank in _LORA_RANKS if rank >= self.lora_rank)
            optional = {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1}
            if self.lora_modules:
                optional["lora_target_modules"] = list(self.lora_modules)
        if self.returns_routes:
            optional["enable_return_routed_experts"] = True
        return optional | {
            "model": str(self.model_dir),
            # A config without `architectures` would be taken for a pooling model.
            "runner": "generate",
            "hf_overrides": self.overrides() | self._exact_head(),
            "dtype": self.dtype,
            "max_model_len": self.max_length,
            "max_num_seqs": self.num_sessions,
            # vLLM computes longer prompts in parts of this size, between which all other requests
            # go on; a pass over 65,536 tokens would hold them up for seconds. Where prompts are
            # computed whole, `VllmEngine` asks for more.
            "max_num_batched_tokens": self._batched_tokens(),
            "enable_prefix_caching": True,
            "enable_sleep_mode": self.sleeps,
            "kv_cache_dtype": self.kv_cache_dtype,
            "kv_offloading_size": float(self.kv_offload_gib) or None,
            # As sampled, temperature applied: the behaviour policy.
            "logprobs_mode": "processed_logprobs",
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "tensor_parallel_size": self.tensor_parallel_size,
            "distributed_executor_backend": "uni" if self.tensor_parallel_size == 1 else "mp",
            "weight_transfer_config": {
                "backend": CHUNK_TRANSFER if self.by_chunks else FILE_TRANSFER
            },
            "worker_extension_cls": WORKER_EXTENSION,
            "disable_log_stats": True,
            "seed": 0,
        }


_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks for which vLLM has kernels."""
FILE_TRANSFER, CHUNK_TRANSFER = "hillclimb_file", "hillclimb_chunks"
"""Names of our weight-transfer engines in vLLM (`trainer.engines.vllm.transfer`)."""
WORKER_EXTENSION = "trainer.engines.vllm.transfer.WeightsExtension"
"""Methods added to vLLM's workers: digests of the weights that they loaded."""
