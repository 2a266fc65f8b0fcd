"""The two kinds of MLP of a layer: a dense one, and experts of which each token gets a few.

Legend: N tokens, D hidden size, F width of a dense MLP, E experts, K experts of a token, I width of
an expert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F

from trainer.inputs.model.families.experts import ExpertLayout


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """One MLP for all tokens."""

    gate_up: torch.Tensor
    """Gate and up projection in one product, [2 F, D]."""
    down: torch.Tensor
    """[D, F]."""

    def __call__(self, x_ND: torch.Tensor, routes_NK: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the output, [N, D]; there are no routes to record."""
        del routes_NK
        gate, up = F.linear(x_ND, self.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate).mul_(up), self.down)


@dataclass(frozen=True, slots=True)
class SharedMlp:
    """An MLP for all tokens beside their experts, and its gate."""

    gate_1D: torch.Tensor
    mlp: DenseMlp

    def __call__(self, x_ND: torch.Tensor) -> torch.Tensor:
        """Compute the output, [N, D]."""
        return F.linear(x_ND, self.gate_1D).sigmoid() * self.mlp(x_ND)


@dataclass(frozen=True, slots=True)
class ExpertMlp:
    """A router that chooses K experts for each token, the experts, and what all tokens share."""

    layout: ExpertLayout
    router_ED: torch.Tensor
    gate_up: torch.Tensor
    """[E, 2 I, D]."""
    down: torch.Tensor
    """[E, D, I]."""
    shared: SharedMlp | None = None

    def __call__(self, x_ND: torch.Tensor, routes_NK: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the output, [N, D]; write the chosen experts into `routes_NK`."""
        scores_NE = F.linear(x_ND, self.router_ED).softmax(-1)
        weights_NK, experts_NK = scores_NE.topk(self.layout.per_token)
        if self.layout.normalises:
            weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
        if routes_NK is not None:
            routes_NK.copy_(experts_NK)
        chosen = (self._computed(x_ND, experts_NK) * weights_NK.unsqueeze(-1)).sum(1)
        return chosen if self.shared is None else chosen + self.shared(x_ND)

    def _computed(self, x_ND: torch.Tensor, experts_NK: torch.Tensor) -> torch.Tensor:
        """Return the output of each token's experts, [N, K, D]: one product over sorted tokens."""
        chosen = experts_NK.flatten()
        order = chosen.argsort(stable=True)
        ends_E = torch.bincount(chosen, minlength=self.layout.num).cumsum(0).to(torch.int32)
        rows = x_ND[order // self.layout.per_token]
        gate, up = F.grouped_mm(rows, self.gate_up.transpose(1, 2), offs=ends_E).chunk(2, dim=-1)
        sorted_rows = F.grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends_E)
        computed = torch.empty_like(sorted_rows).index_copy_(0, order, sorted_rows)
        return computed.view(*experts_NK.shape, -1)


Mlp: TypeAlias = DenseMlp | ExpertMlp
