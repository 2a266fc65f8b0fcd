"""Memory of a layer's MLP in the learner: a dense one, or the experts of a token.

Legend: D hidden size, I width of a dense MLP, E experts of a layer, K of a token, J width of an
expert, b bytes of a number in forward and backward pass.
"""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape


def mlp_bytes_per_token(shape: ModelShape, size: int) -> int:
    """Return the activations that the backward pass needs; `size` is b.

    Dense: gate, its silu, up, and their product: 4 b I. Experts (transformers 5.19,
    `grouped_mm_experts_forward`): the same of each of a token's experts, 4 b J, its input and its
    output, 2 b D; the router's input and scores in float32, 4 D + 8 E; of a shared MLP as of a
    dense one, and its gated output, 2 b D.
    """
    experts = shape.experts
    dense = 4 * size * shape.intermediate_size
    if experts is None:
        return dense
    each = size * (4 * experts.width + 2 * shape.hidden_size) + 32
    sparse = experts.per_token * each + 4 * shape.hidden_size + 8 * experts.num
    sparse += size * (4 * experts.shared_width + 2 * shape.hidden_size * bool(experts.shared_width))
    return sparse if experts.num_layers == shape.num_layers else max(dense, sparse)


def mlp_gradient_bytes_per_token(shape: ModelShape, size: int) -> int:
    """Return the further bytes at the peak of the backward pass.

    Dense: gradients of the product, of silu's result and of up, less the product itself, which is
    freed: 2 b I. Experts: their weighted outputs and the gradients of these are float32.
    """
    experts = shape.experts
    dense = 2 * size * shape.intermediate_size
    if experts is None:
        return dense
    sparse = experts.per_token * 12 * shape.hidden_size
    return sparse if experts.num_layers == shape.num_layers else max(dense, sparse)
