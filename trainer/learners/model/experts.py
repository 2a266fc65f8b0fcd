"""Experts in the learner: which of them compute a token, with which weight, and how evenly.

The product of hidden state and router, its softmax and the weights of the chosen experts are
float32, whatever the pass computes in. vLLM has softmax and weights in float32 too, but rounds the
product to bfloat16 in a bfloat16 engine; transformers rounds the product and the weights. In
float32 all three are the same.

A replayed token is computed by the experts that the engine chose for it, with the weights that the
learner's router gives them, so the router still learns. Source: rollout routing replay, Ma et al.
2025 (arXiv:2510.11370).

Legend: N packed tokens, L layers of the model, E experts of a layer, K experts of a token, D hidden
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLM

IMPLEMENTATION = "grouped_mm"
"""Of transformers' experts, on every device: one product per matrix over tokens sorted by expert.
The loop over experts (`eager`) adds in an order that differs between runs on a GPU, and
`batched_mm` copies an expert's weights for each token."""


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """Counts of the tokens of some passes; rows of layers without experts are 0."""

    tokens_LE: torch.Tensor
    """int64: tokens that each expert computed."""
    strange_L: torch.Tensor
    """int64: replayed experts that the learner's router would not have chosen."""


class ExpertRouters:
    """The routers of a model's layers with experts, of which it replaces the forward pass."""

    def __init__(self, causal_lm: CausalLM, layout: ExpertLayout) -> None:
        """Take over the routers of `causal_lm`, in place."""
        causal_lm.set_experts_implementation(IMPLEMENTATION)
        self.layout = layout
        self._num_layers: int = causal_lm.config.num_hidden_layers
        self._routes_NLK: torch.Tensor | None = None
        self._loads: ExpertLoads | None = None
        self._counts = False
        for index in layout.layers:
            router: torch.nn.Module = causal_lm.model.layers[index].mlp.gate
            router.forward = partial(self._route, router, index)

    def begin(self, routes_NLK: torch.Tensor | None, *, counts: bool) -> None:
        """Begin a forward pass by these experts, or (None) by those that the routers choose.

        A backward pass that computes layers again uses the same ones. `counts`: this pass adds to
        the loads.
        """
        self._routes_NLK, self._counts = routes_NLK, counts

    def end(self) -> None:
        """End the forward pass: what the backward pass computes again is not counted twice."""
        self._counts = False

    def take_loads(self, device: torch.device) -> ExpertLoads:
        """Return the loads since the last call, which may be 0."""
        loads, self._loads = self._loads or self._no_loads(device), None
        return loads

    def _no_loads(self, device: torch.device) -> ExpertLoads:
        shape = (self._num_layers, self.layout.num)
        return ExpertLoads(
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(shape[0], dtype=torch.int64, device=device),
        )

    def _route(
        self, router: torch.nn.Module, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits [N, E], weights [N, K] and indices [N, K]; transformers' own signature."""
        hidden_ND = hidden.reshape(-1, hidden.shape[-1])
        weight_ED: torch.Tensor = router.weight  # type: ignore[assignment]
        logits_NE = F.linear(hidden_ND.float(), weight_ED.float())
        scores_NE = logits_NE.softmax(-1)
        if self._routes_NLK is None:
            weights_NK, experts_NK = scores_NE.topk(self.layout.per_token)
        else:
            experts_NK = self._routes_NLK[:, layer].long()
            weights_NK = scores_NE.gather(-1, experts_NK)
        if self.layout.normalises:
            weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
        if self._counts:
            self._count(layer, experts_NK, scores_NE.detach())
        return logits_NE, weights_NK, experts_NK

    def _count(self, layer: int, experts_NK: torch.Tensor, scores_NE: torch.Tensor) -> None:
        if self._loads is None:
            self._loads = self._no_loads(experts_NK.device)
        chosen = experts_NK.reshape(-1)
        self._loads.tokens_LE[layer].scatter_add_(0, chosen, torch.ones_like(chosen))
        if self._routes_NLK is not None:
            own_NK = scores_NE.topk(self.layout.per_token).indices
            is_own_NK = (experts_NK.unsqueeze(-1) == own_NK.unsqueeze(-2)).any(-1)
            self._loads.strange_L[layer] += (~is_own_NK).sum()
