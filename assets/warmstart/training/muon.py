"""Muon: momentum whose update of every matrix is made nearly orthogonal (Jordan et al., 2024).

Matrices of one shape are orthogonalised together in float32. `torch.optim.Muon` works one by one
in bfloat16, which CPUs without such units only emulate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum 0.95, decoupled weight decay; `lr` is the spectral size of an update.

    Args:
        matrices: parameters with two dimensions.
        lr: multiplied by sqrt(rows / columns) where a matrix is taller than wide.
        momentum: of the gradient average.
        weight_decay: share of a weight lost per step, times `lr`.
    """

    def __init__(
        self,
        matrices: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one update; parameters without a gradient are left alone."""
        del closure
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = orthogonalised(self._momenta(parameters, group["momentum"]))
                size = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-size)

    def _momenta(self, parameters: list[torch.nn.Parameter], momentum: float) -> torch.Tensor:
        stacked = []
        for parameter in parameters:
            gradient = parameter.grad
            assert gradient is not None
            average = self.state[parameter].setdefault("average", torch.zeros_like(gradient))
            average.lerp_(gradient, 1.0 - momentum)
            stacked.append(gradient.lerp(average, momentum))
        return torch.stack(stacked)


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """[n, r, c] to matrices of the same singular vectors, singular values near 1."""
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x: torch.Tensor = matrices.mT if tall else matrices
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
