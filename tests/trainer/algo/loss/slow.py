"""The loss once more, in plain Python: one sequence after the other, one token after the other.

Written from the papers' formulas and apart from `trainer.algo`: no tensors, no autograd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.loss.loss import needs_proximal, needs_reference
from trainer.algo.loss.reduction import token_weights
from trainer.algo.sequences import TrainingSequence

MAX_LENGTH = 16
"""`rollout.max_sequence_length` of these tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Log-probs of one rollout's tokens under the four policies, and its advantage."""

    now: tuple[float, ...]
    behaviour: tuple[float, ...]
    proximal: tuple[float, ...]
    reference: tuple[float, ...]
    advantage: float


_LOGPROBS = st.tuples(*[st.floats(-3.0, 0.0)] * 4)
ROLLOUTS = st.lists(
    st.builds(
        lambda tokens, advantage: Rollout(
            now=tuple(token[0] for token in tokens),
            behaviour=tuple(token[1] for token in tokens),
            proximal=tuple(token[2] for token in tokens),
            reference=tuple(token[3] for token in tokens),
            advantage=advantage,
        ),
        st.lists(_LOGPROBS, min_size=1, max_size=6),
        st.floats(-3.0, 3.0).filter(bool),
    ),
    min_size=1,
    max_size=6,
)
"""A mini-batch, far off-policy."""


def slow_loss(rollouts: list[Rollout], algorithm: AlgorithmSpec) -> tuple[float, list[list[float]]]:
    """The mini-batch's loss, and its derivative by each token's log-prob."""
    num_tokens = sum(len(each.now) for each in rollouts)
    total, gradients = 0.0, []
    for rollout in rollouts:
        share = {
            "token_mean": 1.0 / num_tokens,
            "sequence_mean": 1.0 / len(rollouts) / len(rollout.now),
            "seq_mean_token_sum_norm": 1.0 / len(rollouts) / MAX_LENGTH,
        }[algorithm.loss_reduction]
        factors = _factors(rollout, algorithm)
        row = []
        for at, factor in enumerate(factors):
            value, slope = _surrogate(rollout, at, algorithm)
            kl, kl_slope = _divergence(rollout, at, algorithm)
            total += share * (factor * value + kl)
            row.append(share * (factor * slope + kl_slope))
        gradients.append(row)
    return total, gradients


def _surrogate(rollout: Rollout, at: int, algorithm: AlgorithmSpec) -> tuple[float, float]:
    old = rollout.proximal if needs_proximal(algorithm) else rollout.behaviour
    advantage, kind = rollout.advantage, algorithm.policy_loss_type
    r = math.exp(rollout.now[at] - old[at])
    if kind == "cispo":
        weight = min(max(r, 1.0 - algorithm.cispo.cispo_eps_clip_low), _cispo_top(algorithm))
        return -weight * advantage * rollout.now[at], -weight * advantage
    if kind == "gspo":
        r = math.exp(sum(a - b for a, b in zip(rollout.now, old, strict=True)) / len(old))
    low, high = 1.0 - algorithm.eps_clip_low, 1.0 + algorithm.eps_clip_high
    if advantage > 0 and r > high:
        return -high * advantage, 0.0
    if advantage < 0 and r < low:
        return -low * advantage, 0.0
    if kind == "dual_clip" and advantage < 0 and r > algorithm.clip_ratio_c:
        return -algorithm.clip_ratio_c * advantage, 0.0
    return -r * advantage, -r * advantage


def _cispo_top(algorithm: AlgorithmSpec) -> float:
    return 1.0 + algorithm.cispo.cispo_eps_clip_high


def _factors(rollout: Rollout, algorithm: AlgorithmSpec) -> list[float]:
    spec, num = algorithm.off_policy_correction, len(rollout.now)
    ratios = [math.exp(p - b) for p, b in zip(rollout.proximal, rollout.behaviour, strict=True)]
    factors = [1.0] * num
    if spec.tis_ratio_type == "token":
        factors = [min(r, spec.token_tis_ratio_clip_high) for r in ratios]
    if spec.tis_ratio_type == "sequence":
        factors = [min(math.prod(ratios), spec.sequence_tis_ratio_clip_high)] * num
    if spec.sequence_mask_metric == "product":
        kept = spec.product_mask_low <= math.prod(ratios) <= spec.product_mask_high
        factors = [factor * kept for factor in factors]
    if spec.sequence_mask_metric == "geometric":
        kept = spec.geo_mask_low <= math.prod(ratios) ** (1 / num) <= spec.geo_mask_high
        factors = [factor * kept for factor in factors]
    return factors


def _divergence(rollout: Rollout, at: int, algorithm: AlgorithmSpec) -> tuple[float, float]:
    """Weighted value and slope; 0 where the loss has no such term."""
    if not algorithm.use_kl_loss:
        return 0.0, 0.0
    d, coef = rollout.now[at] - rollout.reference[at], algorithm.kl_loss_coef
    value, slope = {
        "k1": (d, 1.0),
        "k2": (d * d / 2, d),
        "k3": (math.exp(-d) - 1 + d, 1 - math.exp(-d)),
    }[algorithm.kl_estimator_type]
    return coef * value, coef * slope


def weights(rollouts: list[Rollout], algorithm: AlgorithmSpec) -> list[float]:
    """The loss weight of each rollout's tokens in this mini-batch."""
    sequences = [training_sequence(len(each.now)) for each in rollouts]
    return token_weights(sequences, algorithm, max_sequence_length=MAX_LENGTH)


def training_sequence(num_actions: int) -> TrainingSequence:
    """A rollout of which only the number of drawn tokens counts."""
    return TrainingSequence(
        token_ids=(1,) * (num_actions + 2),
        action_mask=(False, False) + (True,) * num_actions,
        logprobs=(0.0,) * (num_actions + 2),
        prompt_length=2,
        advantage=1.0,
        temperature=1.0,
    )


def tensors(
    rollouts: list[Rollout], shares: list[float], algorithm: AlgorithmSpec
) -> tuple[torch.Tensor, ActionTokens]:
    """A micro-batch in float64: log-probs with gradient, and what belongs to them."""

    def flat(rows: list[tuple[float, ...]]) -> torch.Tensor:
        return torch.tensor([value for row in rows for value in row], dtype=torch.float64)

    lengths = torch.tensor([len(each.now) for each in rollouts])
    proximal = flat([each.proximal for each in rollouts]) if needs_proximal(algorithm) else None
    reference = flat([each.reference for each in rollouts]) if needs_reference(algorithm) else None
    actions = ActionTokens(
        behaviour_logprobs_A=flat([each.behaviour for each in rollouts]),
        advantages_A=flat([(each.advantage,) * len(each.now) for each in rollouts]),
        weights_A=flat([(s,) * len(r.now) for r, s in zip(rollouts, shares, strict=True)]),
        sequences_A=torch.repeat_interleave(torch.arange(len(rollouts)), lengths),
        proximal_logprobs_A=proximal,
        reference_logprobs_A=reference,
    )
    return flat([each.now for each in rollouts]).requires_grad_(), actions
