"""Micro-batches of a few tokens for sums done by hand, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.algo.loss.action_tokens import ActionTokens

Rows = Sequence[Sequence[float]]
"""One row of log-probs per sequence."""


def micro_batch(
    now: Rows,
    behaviour: Rows,
    *,
    advantages: Sequence[float],
    weight: float = 1.0,
    proximal: Rows | None = None,
    reference: Rows | None = None,
) -> tuple[torch.Tensor, ActionTokens]:
    """Log-probs with gradient and what belongs to them; every token weighs `weight`."""
    lengths = [len(row) for row in now]
    owners = torch.repeat_interleave(torch.arange(len(now)), torch.tensor(lengths))
    actions = ActionTokens(
        behaviour_logprobs_A=_flat(behaviour),
        advantages_A=torch.tensor(advantages, dtype=torch.float64)[owners],
        weights_A=torch.full((sum(lengths),), weight, dtype=torch.float64),
        sequences_A=owners,
        proximal_logprobs_A=None if proximal is None else _flat(proximal),
        reference_logprobs_A=None if reference is None else _flat(reference),
    )
    return _flat(now).requires_grad_(), actions


def gradient_of(logprobs: torch.Tensor, loss: torch.Tensor) -> list[float]:
    """The derivative of the loss by each token's log-prob."""
    (gradient,) = torch.autograd.grad(loss, logprobs)
    values: list[float] = gradient.tolist()
    return values


def _flat(rows: Rows) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
