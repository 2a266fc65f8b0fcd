"""Token sampling that is independent of the other requests in the batch.

Each draw uses one uniform number that is a pure function of (seed of the request, position of the
token), put through the inverse of the cumulative distribution. Legend: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from trainer.types import SamplingParams

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTokens:
    """One drawn token per row."""

    token_ids: list[int]
    logprobs: list[float]


def draw(
    logits_RV: torch.Tensor, params: Sequence[SamplingParams], positions: Sequence[int]
) -> DrawnTokens:
    """Draw one token per row under that row's settings.

    `positions` are the absolute positions of the drawn tokens in their sequences. Log-probs are
    those of the distribution drawn from: temperature applied, renormalised within the nucleus when
    `top_p` < 1. Greedy rows (temperature 0) take the most likely token and report its log-prob at
    temperature 1.
    """
    device = logits_RV.device
    temperatures = torch.tensor([row.temperature for row in params], device=device)
    greedy = temperatures == 0.0
    logprobs_RV = torch.log_softmax(
        logits_RV.float() / torch.where(greedy, 1.0, temperatures).unsqueeze(1), dim=-1
    )
    if any(row.top_p < 1.0 for row in params):
        top_p = torch.tensor([row.top_p for row in params], device=device)
        logprobs_RV = _within_nucleus(logprobs_RV, torch.where(greedy | (top_p >= 1.0), 2.0, top_p))
    if all(row.temperature == 0.0 for row in params):
        ids_R = logprobs_RV.argmax(-1)
    else:
        ids_R = _inverse_cdf(logprobs_RV, uniforms([row.seed for row in params], positions))
        if any(row.temperature == 0.0 for row in params):
            ids_R = torch.where(greedy, logprobs_RV.argmax(-1), ids_R)
    picked_R = logprobs_RV.gather(1, ids_R.unsqueeze(1)).squeeze(1)
    return DrawnTokens(token_ids=ids_R.tolist(), logprobs=picked_R.tolist())


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return a number in (0, 1) per (seed, position): 32 bits of SplitMix64's finaliser over both.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
    """
    seed = np.array([value & _MASK for value in seeds], dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    mixed = _mix(_mix(seed + _GOLDEN) + position * _GOLDEN)
    return ((mixed >> np.uint64(32)).astype(np.float64) + 0.5) / 2.0**32


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _inverse_cdf(logprobs_RV: torch.Tensor, uniform_R: npt.NDArray[np.float64]) -> torch.Tensor:
    """Return the first token whose cumulative probability passes the uniform number, [R] int64.

    In float64: summed in float32 over a large vocabulary the tail would be off by more than the
    probability of a rare token. `right=True` never picks a token of probability 0.
    """
    cdf_RV = logprobs_RV.exp().cumsum(-1, dtype=torch.float64)
    target_R = torch.from_numpy(uniform_R).to(cdf_RV.device) * cdf_RV[:, -1]
    ids_R1 = torch.searchsorted(cdf_RV, target_R.unsqueeze(1), right=True)
    return ids_R1.squeeze(1).clamp_(max=logprobs_RV.shape[1] - 1)


def _within_nucleus(logprobs_RV: torch.Tensor, top_p_R: torch.Tensor) -> torch.Tensor:
    """Log-probs renormalised over the smallest set of tokens with mass `top_p` (-inf outside).

    A value above 1 keeps every token, however the cumulative sum is rounded.
    """
    ordered_RV, order_RV = logprobs_RV.sort(dim=-1, descending=True)
    mass_before_RV = ordered_RV.exp().cumsum(-1) - ordered_RV.exp()
    ordered_RV = ordered_RV.masked_fill(mass_before_RV >= top_p_R.unsqueeze(1), -torch.inf)
    nucleus_RV = torch.empty_like(logprobs_RV).scatter_(1, order_RV, ordered_RV)
    return torch.log_softmax(nucleus_RV, dim=-1)
