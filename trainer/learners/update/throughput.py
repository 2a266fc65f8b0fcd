"""Throughput and peak memory of the learner.

Legend of the FLOP count: P parameters that multiply, L layers, W width of all query heads.
"""

from __future__ import annotations

import resource

import torch

from hillclimb.hardware.gpus import flops_of_device
from trainer.inputs.model.families.delta_sizes import DeltaSizes
from trainer.inputs.model.families.family import CausalLMConfig, head_dim
from trainer.inputs.model.families.registry import experts_of
from trainer.learners.packing.packing import MicroBatch

_GIB = 1024**3


def train_flops(
    config: CausalLMConfig,
    micro: MicroBatch,
    *,
    num_parameters: int,
    num_adapter_parameters: int = 0,
) -> float:
    """Count the FLOPs of forward and backward over a micro-batch.

    6 P per token (the head's P: per action): 2 each for forward, gradient of the input and gradient
    of the weight; under adapters only they have the last, and the policy's own P count 4. And 12 L
    W per pair of tokens of which one attends to the other: forward 4, backward twice that. What
    activation checkpointing computes again does not count. Of experts a token's own are in P. L are
    the layers that attend; one of linear attention takes 18 per token and number of its state.
    Source: Chowdhery et al. 2022 (PaLM, arXiv:2204.02311, appendix B), causal pairs only.
    """
    head = config.vocab_size * config.hidden_size
    body = _body_parameters(config, num_parameters)
    pairs = 0.0
    for group in micro.prefix_groups:
        prompt = group.prompt_length
        pairs += prompt * (prompt + 1) / 2
        pairs += sum(n * prompt + n * (n + 1) / 2 for n in group.branch_lengths)
    tokens, actions = len(micro.token_ids_N), len(micro.targets_A)
    own = (4.0 if num_adapter_parameters else 6.0) * (body * tokens + head * actions)
    attention = 12.0 * _num_attention_layers(config) * _query_width(config)
    states = 18.0 * _state_numbers(config) * tokens
    return own + 6.0 * num_adapter_parameters * tokens + attention * pairs + states


def pair_cost(config: CausalLMConfig, *, num_parameters: int) -> float:
    """Return the FLOPs of a pair of tokens over those of a token, as `train_flops` counts them.

    Of Qwen3-8B it is 1/24,000: at 24,000 tokens a sequence costs half as much again as its tokens.
    """
    body = _body_parameters(config, num_parameters)
    per_token = 6.0 * body + 18.0 * _state_numbers(config)
    return 12.0 * _num_attention_layers(config) * _query_width(config) / per_token


def _body_parameters(config: CausalLMConfig, num_parameters: int) -> int:
    """Return the parameters of all layers that a token is multiplied with."""
    layout, hidden = experts_of(config), config.hidden_size
    idle = 0
    if layout is not None:
        per_layer = (layout.num - layout.per_token) * 3 * hidden * layout.width
        idle = len(layout.layers) * per_layer
    return num_parameters - _head_parameters(config) - idle


def _num_attention_layers(config: CausalLMConfig) -> int:
    return config.num_hidden_layers - _num_linear_layers(config)


def _num_linear_layers(config: CausalLMConfig) -> int:
    return list(getattr(config, "layer_types", None) or ()).count("linear_attention")


def _state_numbers(config: CausalLMConfig) -> int:
    """Return the numbers of all states of a sequence."""
    num = _num_linear_layers(config)
    if not num:
        return 0
    sizes = DeltaSizes.of(config)
    return num * sizes.value_heads * sizes.key_dim * sizes.value_dim


def _head_parameters(config: CausalLMConfig) -> int:
    head: int = config.vocab_size * config.hidden_size
    return (1 if config.tie_word_embeddings else 2) * head


def _query_width(config: CausalLMConfig) -> int:
    width: int = config.num_attention_heads * head_dim(config)
    return width


def peak_flops(device: torch.device) -> float | None:
    """Return the device's peak FLOP/s in bfloat16; None where it is not known."""
    if device.type != "cuda":
        return None
    return flops_of_device(torch.cuda.get_device_name(device))


def peak_memory_gib(device: torch.device) -> float:
    """Return the most memory so far: of tensors on a GPU, of the whole process elsewhere (GiB)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB
