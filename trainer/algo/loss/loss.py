"""The policy loss of a step: surrogate x correction + KL divergence, weighted token by token.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import torch
from numpy.typing import ArrayLike

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens, BySequence, ratio
from trainer.algo.loss.cispo import cispo
from trainer.algo.loss.clipped import Surrogate, dual_clip, regular
from trainer.algo.loss.correction import Correction, correct
from trainer.algo.loss.divergence import divergence
from trainer.algo.loss.gspo import gspo
from trainer.algo.loss.stats import LossStats, loss_stats
from trainer.algo.streams import Stream

if TYPE_CHECKING:
    from trainer.algo.signal import ScoredGroup
    from trainer.types import Trajectory

Figures: TypeAlias = dict[str, torch.Tensor]
"""Scalars, named as the fields of `LossStats`."""
Writer: TypeAlias = "Callable[[Trajectory, ScoredGroup], ArrayLike]"
"""Returns the values of a stream for a rollout of a group, when the batch is built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy loss: its surrogate, and the streams that it reads in `ActionTokens.further`."""

    surrogate: Callable[[torch.Tensor, ActionTokens, AlgorithmSpec], Surrogate]
    streams: Mapping[Stream, Writer] = field(default_factory=dict)


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "regular": Variant(surrogate=regular),
        "dual_clip": Variant(surrogate=dual_clip),
        "gspo": Variant(surrogate=gspo),
        "cispo": Variant(surrogate=cispo),
    }
)
"""By `policy_loss_type`."""


def variant_of(algorithm: AlgorithmSpec) -> Variant:
    """Return the policy loss of a spec."""
    return VARIANTS[algorithm.policy_loss_type]


def policy_loss(
    logprobs_A: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec
) -> tuple[torch.Tensor, LossStats]:
    """Compute the micro-batch's part of the mini-batch loss (a scalar to minimise) and its figures.

    `logprobs_A` come with gradient, from the policy as it is now.
    """
    surrogate = variant_of(algorithm).surrogate(logprobs_A, actions, algorithm)
    losses_A, figures = surrogate.losses_A, _figures(logprobs_A, actions, surrogate)
    if needs_proximal(algorithm):
        correction = correct(actions, algorithm.off_policy_correction)
        losses_A = losses_A * correction.factors_A
        figures |= _correction_figures(correction)
    loss = figures["policy_loss"] = (actions.weights_A * losses_A).sum()
    by_sequence = BySequence.of(actions)
    if needs_reference(algorithm):
        assert actions.reference_logprobs_A is not None
        kl_A = divergence(logprobs_A, actions.reference_logprobs_A, algorithm.kl_estimator_type)
        kl_loss = (actions.weights_A * kl_A).sum()
        loss = loss + algorithm.kl_loss_coef * kl_loss
        figures |= {
            "kl_loss": kl_loss,
            "kl": kl_A.sum(),
            "sequence_kl_max": by_sequence.maxima(kl_A.detach().abs()).sum(),
        }
    figures["loss"] = loss
    counts = {"num_tokens": len(logprobs_A), "num_sequences": by_sequence.num_sequences}
    return loss, loss_stats(figures, **counts)


def needs_proximal(algorithm: AlgorithmSpec) -> bool:
    """Tell whether the loss compares with the policy that the step began with."""
    return algorithm.off_policy_correction.is_on


def needs_reference(algorithm: AlgorithmSpec) -> bool:
    """Tell whether the loss compares with the policy that training started from."""
    return algorithm.use_kl_loss


@torch.no_grad()
def _figures(logprobs_A: torch.Tensor, actions: ActionTokens, surrogate: Surrogate) -> Figures:
    """Sum up the distance from the behaviour policy, and the tokens that were clipped."""
    log_ratio_A = logprobs_A - actions.behaviour_logprobs_A
    ratio_A, diff_A = ratio(log_ratio_A), log_ratio_A.abs()
    current_A = actions.is_current_A
    if current_A is None:
        current_A = torch.ones_like(diff_A, dtype=torch.bool)
    # Tokens sampled by older weights differ because the policy has moved on, not because engine and
    # learner disagree: only the current weights' tokens measure the latter.
    diff_A = diff_A.where(current_A, 0.0)
    return {
        "num_current_tokens": current_A.sum(),
        "num_clipped_low": surrogate.clipped_low_A.sum(),
        "num_clipped_high": surrogate.clipped_high_A.sum(),
        "num_dual_clipped": surrogate.dual_clipped_A.sum(),
        "ratio": ratio_A.sum(),
        "ratio_squared": ratio_A.square().sum(),
        "behaviour_kl": divergence(actions.behaviour_logprobs_A, logprobs_A, "k3").sum(),
        "abs_logprob_diff": diff_A.sum(),
        "max_abs_logprob_diff": diff_A.max(),
        "squared_logprob_diff": diff_A.square().sum(),
    }


def _correction_figures(correction: Correction) -> Figures:
    return {
        "tis_weight": correction.tis_weights_A.sum(),
        "num_tis_truncated": correction.num_truncated,
        "max_correction_ratio": correction.max_ratio,
        "num_masked_low": correction.masked_low_S.sum(),
        "num_masked_high": correction.masked_high_S.sum(),
    }
