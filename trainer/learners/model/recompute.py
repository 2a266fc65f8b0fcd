"""Activation checkpointing: what a layer keeps for its backward pass, and what it computes again.

Source: Chen et al. 2016 (arXiv:1604.06174), and torch's selective checkpointing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.attention.varlen  # registers torch_attn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import create_selective_checkpoint_contexts

import trainer.learners.model.kernels.flash4  # noqa: F401 - registers hillclimb.flash4

_ATTENTION = [
    torch.ops.aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001 - torch's own name
    torch.ops.aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
    torch.ops.torch_attn._varlen_attn.default,  # noqa: SLF001
    torch.ops.hillclimb.flash4.default,
]
_MATMULS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
RESULTS: Mapping[str, list[Any]] = {
    "none": [],
    "attention": _ATTENTION,
    "matmuls": [*_ATTENTION, *_MATMULS],
}
"""Operations whose results are kept, by `learner.keep_activations`."""


def recomputed(layer: torch.nn.Module, keep: str) -> torch.nn.Module:
    """Return the layer with its activations computed again, except for the results of `keep`."""
    if not RESULTS[keep]:
        return checkpoint_wrapper(layer)
    contexts = partial(create_selective_checkpoint_contexts, RESULTS[keep])
    return checkpoint_wrapper(layer, context_fn=contexts)
