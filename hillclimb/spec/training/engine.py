"""The section `engine`: the inference engine, its precision, memory and weight transport."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section, reject_unused

Transport = Literal["auto", "shm", "disk", "lora", "ipc", "nccl"]


class EngineSpec(Section):
    """The inference engine that samples rollouts: its type, precision, memory and copies."""

    type: Literal["auto", "vllm", "torch"] = "auto"
    """`vllm`: vLLM, in its own processes. `torch`: the portable engine, in the trainer's process
    or, with `placement.type` ray, in a worker's; float32 only. `auto`: vLLM if it can be imported,
    else torch; the event `trainer.started` names the one in use."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of sampling; bfloat16 needs vLLM."""
    weight_transport: Transport = "auto"
    """Transport of weights from the learner to vLLM: `shm` a file in shared memory, `disk` a file
    in the run's directory, `lora` only the adapter, by shared memory (needs `learner.lora` and
    `type` vllm). `ipc`: each engine shares a GPU with a rank of the learner and reads its memory.
    `nccl`: broadcast to engines on separate GPUs. `auto`: nccl (lora with `learner.lora`) on GPUs
    with `type` vllm, else shm. The torch engine in the trainer's process reads them from memory."""
    kv_cache_gib: Annotated[int, Field(ge=1, le=1024)] = 1
    """Memory of vLLM's KV cache on a CPU (GiB)."""
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85
    """Share of a GPU's memory for vLLM's weights and KV cache; read on GPUs only."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """Precision of vLLM's KV cache on a GPU: `auto` that of `dtype`. `fp8` holds twice as many
    tokens as bfloat16, and what is sampled is further from what the learner computes: set
    `algorithm.off_policy_correction` with it."""
    kv_offload_gib: Annotated[int, Field(ge=0, le=4096)] = 0
    """Main memory of each engine on GPUs for parts of the KV cache that the GPU evicts (GiB); 0:
    evicted parts are computed again."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs per copy of the model (count); more than one was never run and needs
    `experimental: true`."""
    data_parallel_size: Annotated[int, Field(ge=1, le=256)] = 1
    """Copies of the engine, each in its own process with its own GPUs. Rollouts of one task stay on
    one copy, the one with the fewest unfinished rollouts when the first of them begins."""
    sleep_level: Annotated[int, Field(ge=1, le=2)] = 1
    """With `placement.colocate`, what becomes of vLLM's weights while the learner has the GPUs: 1
    keeps them in the machine's memory, 2 discards them, since the next sync sends all of them."""

    @property
    def cache_needs_gpu(self) -> str | None:
        """Return the setting of the cache that works on a GPU alone, with its value; else None."""
        if self.kv_cache_dtype != "auto":
            return f"engine.kv_cache_dtype {self.kv_cache_dtype}"
        return f"engine.kv_offload_gib {self.kv_offload_gib}" if self.kv_offload_gib else None

    @property
    def is_direct(self) -> bool:
        """Tell whether weights go from process to process without being stored."""
        return self.weight_transport in ("ipc", "nccl")

    def transport_between_gpus(self, *, has_adapter: bool) -> Transport:
        """Return the transport of a learner and engines on GPUs: `auto` decided, any other kept.

        Not `ipc`: engines and ranks would share GPUs, which only the spec can decide.
        """
        if self.weight_transport != "auto" or self.type != "vllm":
            return self.weight_transport
        return "lora" if has_adapter else "nccl"

    @model_validator(mode="after")
    def _transports_need_vllm(self) -> Self:
        if (self.weight_transport == "lora" or self.is_direct) and self.type != "vllm":
            raise ValueError(
                f"weight_transport {self.weight_transport} needs vLLM, and engine.type"
                f" {self.type} may use another engine: set engine.type to vllm"
            )
        if self.weight_transport == "ipc" and self.tensor_parallel_size > 1:
            raise ValueError(
                "weight_transport ipc hands a whole model to one GPU: set tensor_parallel_size to"
                " 1, or the transport to nccl"
            )
        return self

    @model_validator(mode="after")
    def _precision_fits(self) -> Self:
        if self.type == "torch" and self.dtype != "float32":
            raise ValueError(
                "the torch engine samples in float32 only: set engine.dtype to float32 or"
                " engine.type to vllm"
            )
        return self

    @model_validator(mode="after")
    def _memory_is_read(self) -> Self:
        by_vllm = ("kv_cache_gib", "gpu_memory_utilization", "tensor_parallel_size")
        reject_unused(self, by_vllm, only=("type", "auto", "vllm"))
        reject_unused(self, ("kv_cache_dtype", "kv_offload_gib"), only=("type", "vllm"))
        if self.kv_cache_dtype == "fp8" and self.dtype != "bfloat16":
            raise ValueError(
                f"kv_cache_dtype fp8 is for models in bfloat16, and engine.dtype is {self.dtype}:"
                " set that to bfloat16, or kv_cache_dtype to auto"
            )
        return self
