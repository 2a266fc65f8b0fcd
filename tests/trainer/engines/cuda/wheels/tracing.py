"""Traces a layer of each family by `torch.compile`, for families of rollouts of changing lengths.

Over fake tensors on `cuda`, so that the attention is the GPU's; the graphs are not compiled. It
prints how many graphs there were, and why any was cut.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.trainer.fixtures.families import TYPES, family_model
from trainer.inputs.model.families.registry import family_of
from trainer.learners.model.attention import NAME
from trainer.learners.model.kernels.varlen import VarlenLayout
from trainer.learners.packing.packing import PrefixGroup
from trainer.learners.recurrent import rule
from trainer.learners.recurrent.delta_net import prepare

DEVICE = torch.device("cuda:0")
LENGTHS = (
    ((9, (3, 1, 4)), (4, (6,))),
    ((12, (5, 2)),),
    ((7, (8, 8, 8, 8)), (3, ()), (5, (4, 9))),
    ((31, (16, 2, 7)), (6, (11,))),
)
"""Families of four micro-batches: prompt, and branches."""


def main() -> None:
    """Print the number of graphs and the reasons of cuts, by family of models."""
    found = {}
    # Kernels that a GPU compiles cannot be traced here: plain torch is, in their place.
    rule.by_kernels = rule.in_plain_torch
    with FakeTensorMode(allow_non_fake_inputs=True):
        for model_type in TYPES:
            found[model_type] = traced(model_type)
    sys.stdout.write(f"{json.dumps(found)}\n")


def traced(model_type: str) -> dict[str, Any]:
    """Pass four micro-batches through a compiled layer, with gradients."""
    torch._dynamo.reset()
    counters.clear()
    torch.set_default_dtype(torch.bfloat16)
    with DEVICE:
        model = family_model(model_type)
    torch.set_default_dtype(torch.float32)
    model.set_attn_implementation(NAME)
    if family_of(model.config).has_linear_attention:
        prepare(model)
    layer = torch.compile(model.model.layers[0], dynamic=True, backend="eager")
    for families in LENGTHS:
        groups = tuple(PrefixGroup(prompt_length=p, branch_lengths=b) for p, b in families)
        num_tokens = sum(group.num_tokens for group in groups)
        hidden = torch.randn(1, num_tokens, model.config.hidden_size, device=DEVICE)
        hidden = hidden.bfloat16().requires_grad_()
        positions = torch.arange(num_tokens, device=DEVICE).unsqueeze(0)
        output = layer(
            hidden,
            attention_mask=None,
            position_ids=positions,
            position_embeddings=model.model.rotary_emb(hidden, positions),
            prefix_groups=groups,
            varlen_layout=VarlenLayout.of(groups, DEVICE),
        )
        torch.autograd.backward(output.float().sum())
        assert hidden.grad is not None
    stats = counters["stats"]
    return {"graphs": stats["unique_graphs"], "cuts": dict(counters["graph_break"])}


if __name__ == "__main__":
    main()
