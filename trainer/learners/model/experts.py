"""Experts in the learner: which of them compute a token, with which weight, and how evenly.

The product of hidden state and router, its softmax and the weights of the chosen experts are
float32, whatever the pass computes in. vLLM has softmax and weights in float32 too, but rounds the
product to bfloat16 in a bfloat16 engine; transformers rounds the product and the weights. In
float32 all three are the same.

Legend: N packed tokens, L layers of the model, E experts of a layer, K experts of a token, D hidden
size.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLM

IMPLEMENTATION = "grouped_mm"
"""Of transformers' experts, on every device: one product per matrix over tokens sorted by expert.
The loop over experts (`eager`) adds in an order that differs between runs on a GPU, and
`batched_mm` copies an expert's weights for each token."""


class ExpertRouters:
    """The routers of a model's layers with experts, of which it replaces the forward pass."""

    def __init__(self, causal_lm: CausalLM, layout: ExpertLayout) -> None:
        """Take over the routers of `causal_lm`, in place."""
        causal_lm.set_experts_implementation(IMPLEMENTATION)
        self._layout = layout
        self._loads_LE: torch.Tensor | None = None
        self._counts = False
        for index in layout.layers:
            router: torch.nn.Module = causal_lm.model.layers[index].mlp.gate
            router.forward = partial(self._route, router, index)

    def begin(self, *, counts: bool) -> None:
        """Begin a forward pass, in whose load the tokens are counted if `counts`."""
        self._counts = counts

    def end(self) -> None:
        """End the forward pass: what the backward pass computes again is not counted twice."""
        self._counts = False

    def take_loads(self) -> torch.Tensor | None:
        """Return, and forget, the tokens that each expert computed, [L, E]; None if there are none.

        Rows of layers without experts are 0.
        """
        loads, self._loads_LE = self._loads_LE, None
        return loads

    def _route(
        self, router: torch.nn.Module, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits [N, E], weights [N, K] and indices [N, K]; transformers' own signature."""
        hidden_ND = hidden.reshape(-1, hidden.shape[-1])
        weight_ED: torch.Tensor = router.weight  # type: ignore[assignment]
        logits_NE = F.linear(hidden_ND.float(), weight_ED.float())
        weights_NK, experts_NK = logits_NE.softmax(-1).topk(self._layout.per_token)
        if self._layout.normalises:
            weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
        if self._counts:
            self._count(layer, experts_NK)
        return logits_NE, weights_NK, experts_NK

    def _count(self, layer: int, experts_NK: torch.Tensor) -> None:
        if self._loads_LE is None:
            shape = (max(self._layout.layers) + 1, self._layout.num)
            self._loads_LE = torch.zeros(shape, dtype=torch.int64, device=experts_NK.device)
        ones = torch.ones((), dtype=torch.int64, device=experts_NK.device)
        self._loads_LE[layer].scatter_add_(
            0, experts_NK.reshape(-1), ones.expand(experts_NK.numel())
        )
