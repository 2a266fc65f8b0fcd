"""Memory of a layer of linear attention in the learner, on a GPU with flash-linear-attention.

Counted from the source of the kernels and of `trainer.learners.recurrent`; never compared
with a run. In plain torch, as on a CPU, a layer takes a few times as much.
"""

from __future__ import annotations

from hillclimb.hardware.memory.mlp import mlp_bytes_per_token
from hillclimb.hardware.model.shapes import ModelShape

_CHUNK = 64
"""Tokens between two states that the kernels keep for the backward pass."""


def linear_bytes_per_token(shape: ModelShape, size: int) -> int:
    """Return the activations that a layer's backward pass needs, MLP included, per token.

    `size` is b, the bytes of a number of the pass; E channels of the convolution, M value heads, K
    and V numbers of all query or key and of all value heads (keys are repeated for them). The two
    norms over D as in attention; the projection, its convolution and silu: 3 b E; of the kernels
    queries, keys (raw and normalised) and values in order, and their output: b (4 K + 2 V); decay
    and beta, 12 M; the states between chunks, b S per 64 tokens; output and gate in float32
    and in the pass's precision, their norm and product: (12 + 4 b) V.
    """
    linear = shape.linear
    if linear is None:
        return 0
    per_norm = 4 + size if size == 2 else 8
    norms = 2 * (per_norm + size) * shape.hidden_size
    keys, values = linear.value_heads * linear.key_dim, linear.values
    kernels = size * (4 * keys + 2 * values) + 12 * linear.value_heads
    states = size * linear.state_numbers // _CHUNK
    gated = (12 + 4 * size) * values
    mixer = 3 * size * linear.channels + kernels + states + gated
    return norms + mixer + mlp_bytes_per_token(shape, size)
