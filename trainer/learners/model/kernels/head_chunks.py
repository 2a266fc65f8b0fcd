"""Statistics and gradient of a chunk of scores over the vocabulary, apart from matrix products.

The scores are the largest tensor there is, and each plain operation reads and writes it. On a GPU
all of them are compiled together.
Legend: C tokens of the chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


@cache
def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function for tensors on a GPU; chunks may have any number of tokens."""
    return torch.compile(function, dynamic=True)


def statistics(
    scores_CV: torch.Tensor, temperatures_C: torch.Tensor, targets_C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-sum-exp, log-prob of the target and entropy, each [C], at the temperature."""
    scores_CV = scores_CV / temperatures_C.unsqueeze(1)
    norms_C = scores_CV.logsumexp(1)
    logprobs_CV = scores_CV - norms_C.unsqueeze(1)
    chosen_C = logprobs_CV.gather(1, targets_C.unsqueeze(1)).squeeze(1)
    return norms_C, chosen_C, -(logprobs_CV.exp() * logprobs_CV).sum(1)


def slopes(
    scores_CV: torch.Tensor,
    temperatures_C: torch.Tensor,
    norms_C: torch.Tensor,
    targets_C: torch.Tensor,
    scale_C1: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the gradient of the scores, [C, V], for log-probs with a gradient of `scale_C1`."""
    probs_CV = (scores_CV / temperatures_C.unsqueeze(1) - norms_C.unsqueeze(1)).exp()
    columns_V = torch.arange(scores_CV.shape[1], device=scores_CV.device)
    is_target_CV = columns_V == targets_C.unsqueeze(1)
    return (torch.where(is_target_CV, scale_C1, 0.0) - scale_C1 * probs_CV).to(dtype)
