"""KL divergence between two policies, estimated per token on samples of the first."""

from __future__ import annotations

from typing import Literal

import torch

_MAX_EXPONENT = 20.0
"""Keeps `k3` finite in float32 where the other policy found a token far likelier."""


def divergence(
    logprobs: torch.Tensor, other_logprobs: torch.Tensor, kind: Literal["k1", "k2", "k3"]
) -> torch.Tensor:
    """Estimate KL(policy || other) per token, in nats, any shape; with gradient by `logprobs`.

    With d = log-prob - other log-prob: `k1` is d, unbiased and of either sign; `k2` is d^2 / 2,
    biased, but its gradient is that of the true divergence where the policy drew the tokens
    itself; `k3` is exp(-d) - 1 + d, unbiased and never negative.

    Source: Schulman 2020, "Approximating KL divergence" (joschu.net/blog/kl-approx.html).
    """
    d = logprobs - other_logprobs
    if kind == "k1":
        return d
    if kind == "k2":
        return d.square() / 2.0
    # `expm1`: near d = 0 the result is d^2 / 2, which exp(-d) - 1 loses in float32 (for d = 0.02
    # the rounding of exp alone is 3e-4 of it).
    return (-d).clamp(max=_MAX_EXPONENT).expm1() + d
