"""Limits of the build of vLLM on this machine, and the arguments that it needs.

The build for GPUs has none of these limits; the CPU build starts with settings that it dies of at
the first request.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from hillclimb.hardware.model.defaults import why_no_float32_adapters
from trainer.engines.vllm.linear import why_not_linear
from trainer.engines.vllm.options import VllmOptions
from trainer.inputs.model.families.family import CausalLMConfig, head_dim
from trainer.inputs.model.families.registry import family_of


def why_not(config: CausalLMConfig, dtype: str) -> str | None:
    """Return the reason why this build of vLLM cannot run the model in `dtype`; None when it can.

    A CPU build starts with any head size, and with linear attention in any precision, and then
    crashes at the first request.
    """
    if not current_platform.is_cpu():
        return None
    if torch.cuda.is_available():
        return (
            "this is vLLM's CPU build, on a machine with GPUs: install the packages of"
            " requirements/trainer-gpu.txt, which have its CUDA build"
        )
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    size = head_dim(config)
    if size not in sizes:
        return f"vLLM on a CPU has no attention for heads of {size} (it has {sizes})"
    return why_not_linear(config, dtype) if family_of(config).has_linear_attention else None


def why_no_routes() -> str | None:
    """Return why this build of vLLM does not return the experts of each token; None if it does."""
    if not current_platform.is_cpu():
        return None
    return (
        "vLLM on a CPU does not return the experts of a token (its newer model runner does, and"
        " needs Triton), which learner.routing_replay needs: set engine.type to torch, or leave"
        " learner.routing_replay out"
    )


def why_no_adapters(options: VllmOptions) -> str | None:
    """Return why this build of vLLM does not serve the adapters that `options` names, or None."""
    if options.lora_rank is None:
        return None
    if not current_platform.is_cpu():
        return why_no_float32_adapters(options.dtype)
    if not options.lora_modules:
        return None
    return (
        "vLLM on a CPU serves no adapter of a model with experts (its kernel for both needs"
        " Triton): set engine.weight_transport to auto, which sends the merged weights"
    )


def arguments_of_build(options: VllmOptions) -> dict[str, Any]:
    """Arguments that depend on the build of vLLM; one for GPUs keeps its own defaults."""
    if not current_platform.is_cpu():
        return {}
    # With linear attention a block has to be as large as a state, so that vLLM chooses its size; it
    # keeps states for a prefix only where prompts may be computed in parts, which crashes (below).
    # Otherwise a block is small: vLLM caches whole ones only, and with a CPU build's 128 tokens a
    # turn would mostly compute again what the turn before had computed.
    cache = {"enable_prefix_caching": False} if options.has_linear_attention else {"block_size": 32}
    return cache | {
        "enforce_eager": True,
        # Scores in float32 would convert the whole head at each step, and the learner rounds them.
        "hf_overrides": options.overrides(),
        # There is no GPU to give back; the calls are the same.
        "enable_sleep_mode": False,
        # vLLM 0.32 on a CPU crashes at a seeded request whose prompt is split over two steps: its
        # generators have no offset to rewind.
        **options.whole_prompts(),
    }
