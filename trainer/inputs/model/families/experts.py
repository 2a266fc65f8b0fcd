"""The experts of a model: how many, how many a token gets, and the layers that have them.

A layer with experts has `mlp.gate` (the router, one row per expert) and `mlp.experts`, of which
transformers keeps all in two tensors, `gate_up_proj` and `down_proj`. Files of published models
have three matrices per expert. Legend: E experts, I width of an expert, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

STACKED = ".mlp.experts."
MATRICES = {"gate_up_proj": ("gate_proj", "up_proj")}
"""Of an expert in files, whose rows a stacked tensor has one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayout:
    """The experts of one model."""

    num: int
    """Of a layer (count)."""
    per_token: int
    """Experts that compute a token, those with the highest scores (count)."""
    width: int
    """Of an expert's MLP."""
    normalises: bool
    """The scores of a token's experts are divided by their sum."""
    layers: tuple[int, ...]
    """Indices of the layers with experts; the others have a dense MLP."""
    shared_width: int = 0
    """Of an MLP that computes every token beside its experts, `mlp.shared_expert`, behind a gate,
    `mlp.shared_expert_gate`; 0 where there is none."""


def published_tensors(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor under the names that published models have in files.

    `mlp.experts.gate_up_proj`, [E, 2 I, D], becomes `mlp.experts.0.gate_proj.weight` and so on,
    as views; any other tensor stays. These are the names of transformers' `save_pretrained`.
    """
    prefix, stacked, part = name.partition(STACKED)
    if not stacked or tensor.dim() != 3:
        yield name, tensor
        return
    for number, matrix in enumerate(tensor):
        own = f"{prefix}{STACKED}{number}."
        if part == "gate_up_proj":
            gate, up = matrix.chunk(2)
            yield f"{own}gate_proj.weight", gate
            yield f"{own}up_proj.weight", up
        else:
            yield f"{own}{part}.weight", matrix
