"""FLOPs of a model's forward pass."""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape


def forward_flops(
    shape: ModelShape, *, num_tokens: float, num_outputs: float, num_pairs: float
) -> float:
    """Count the FLOPs of computing tokens once: a third of what training on them takes.

    2 per token and parameter of the layers (of experts a token's own), 2 D V per token that the
    head is computed for, and 4 L Q H per pair of tokens of which one attends to the other, in the
    layers that attend. A layer of linear attention reads its state twice and writes it once: 6 per
    token and number of the state.
    Source: Chowdhery et al. 2022 (PaLM, arXiv:2204.02311, appendix B), causal pairs only.
    """
    body = shape.active_parameters - (1 if shape.is_tied else 2) * shape.embedding_parameters
    attention = 4.0 * shape.num_attention_layers * shape.query_width
    dense = 2.0 * (body * num_tokens + shape.embedding_parameters * num_outputs)
    states = 0 if shape.linear is None else shape.linear.num_layers * shape.linear.state_numbers
    return dense + attention * num_pairs + 6.0 * states * num_tokens
