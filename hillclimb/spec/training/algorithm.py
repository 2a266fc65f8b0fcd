"""The section `algorithm`: the policy-gradient loss, with SkyRL's names.

A setting that has no effect because of another one is refused, so that a spec never claims what
the run does not do.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section, reject_unused

Ratio = Annotated[float, Field(gt=0.0, le=1e4)]
LARGEST_GSPO_CLIP = 0.02
"""Largest clip of a sequence's mean ratio: fifty times the paper's, and still far below PPO's."""


class CispoSpec(Section):
    """Bounds of CISPO's importance weights (arXiv:2506.13585, equation 5)."""

    cispo_eps_clip_low: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Weights are at least 1 - cispo_eps_clip_low; 1 sets no lower bound, as in the paper."""
    cispo_eps_clip_high: Annotated[float, Field(gt=0.0, le=100.0)] = 5.0
    """Weights are at most 1 + cispo_eps_clip_high."""


class OffPolicyCorrectionSpec(Section):
    """Corrections for rollouts sampled by an older policy than the one at the start of the step.

    Any of them makes the learner score every rollout before the first update of the step: r is that
    probability over the one at sampling, and the clipped ratio of the loss starts at 1.
    """

    tis_ratio_type: Literal["token", "sequence"] | None = None
    """Truncated importance sampling: weight each token's loss by r, its own (`token`) or the
    product over its sequence (`sequence`), clipped above; null: off."""
    token_tis_ratio_clip_high: Ratio = 2.0
    """Upper clip of the weights of `token`."""
    sequence_tis_ratio_clip_high: Ratio = 5.0
    """Upper clip of the weights of `sequence`."""
    sequence_mask_metric: Literal["product", "geometric"] | None = None
    """Mask sequences in the policy loss whose r, as product or geometric mean over the tokens, is
    out of bounds; they stay in the denominator of the mean. null masks none."""
    product_mask_low: Ratio = 0.5
    """Lower bound of `product`."""
    product_mask_high: Ratio = 2.0
    """Upper bound of `product`."""
    geo_mask_low: Ratio = 0.99
    """Lower bound of `geometric`."""
    geo_mask_high: Ratio = 1.01
    """Upper bound of `geometric`."""

    @property
    def is_on(self) -> bool:
        """Tell whether any correction is on."""
        return self.tis_ratio_type is not None or self.sequence_mask_metric is not None

    @property
    def mask_bounds(self) -> tuple[float, float]:
        """Smallest and largest r of sequences that are not masked, by the chosen metric."""
        if self.sequence_mask_metric == "product":
            return self.product_mask_low, self.product_mask_high
        return self.geo_mask_low, self.geo_mask_high

    @model_validator(mode="after")
    def _bounds_are_in_order_and_read(self) -> Self:
        by_product = ("product_mask_low", "product_mask_high")
        by_mean = ("geo_mask_low", "geo_mask_high")
        reject_unused(self, ("token_tis_ratio_clip_high",), only=("tis_ratio_type", "token"))
        reject_unused(self, ("sequence_tis_ratio_clip_high",), only=("tis_ratio_type", "sequence"))
        reject_unused(self, by_product, only=("sequence_mask_metric", "product"))
        reject_unused(self, by_mean, only=("sequence_mask_metric", "geometric"))
        low, high = self.mask_bounds
        if low >= high:
            raise ValueError(
                f"the bounds of sequence_mask_metric ({low:g} and {high:g}) leave nothing between:"
                " lower the first or raise the second"
            )
        return self


class DynamicSamplingSpec(Section):
    """Resample until the groups of a step carry signal: their rollouts do not all score alike."""

    type: Literal["filter", "replace"]
    """`filter`: a prompt whose rollouts all score the same is replaced by another prompt, so that
    every group of a step carries signal (DAPO, arXiv:2503.14476). `replace`: groups without signal
    are replaced by copies of groups with signal; a batch with too few of these is discarded and
    sampled again."""
    max_sample_batches: Annotated[int, Field(ge=2, le=1000)] = 30
    """Limit of prompts tried for one group of a batch (`filter`), or of batches sampled for one
    step (`replace`). At the limit the step uses the last one, and an event reports it."""
    min_replace_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.3
    """Of `replace`: more than this share of a batch's groups must carry signal."""

    @model_validator(mode="after")
    def _ratio_is_read(self) -> Self:
        reject_unused(self, ("min_replace_ratio",), only=("type", "replace"))
        return self


class AlgorithmSpec(Section):
    """The policy-gradient step: GRPO (Shao et al. 2024, arXiv:2402.03300)."""

    type: Literal["grpo"] = "grpo"
    """Group relative policy optimisation."""
    grpo_norm_by_std: bool = True
    """Divide advantages by the group's standard deviation; false is Dr. GRPO (arXiv:2503.20783)."""
    policy_loss_type: Literal["regular", "dual_clip", "gspo", "cispo"] = "regular"
    """`regular`: PPO's clipped ratio, per token. `dual_clip`: the loss of a token with negative
    advantage is bounded too (arXiv:1912.09729). `gspo`: one length-normalised ratio per sequence
    (arXiv:2507.18071), which needs much tighter clips (the paper: 3e-4 and 4e-4). `cispo`: the
    ratio is a bounded weight and every token keeps its gradient (arXiv:2506.13585)."""
    eps_clip_low: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Lower clip of the probability ratio: 1 - eps_clip_low."""
    eps_clip_high: Annotated[float, Field(gt=0.0, le=10.0)] = 0.28
    """Upper clip of the probability ratio: 1 + eps_clip_high (DAPO, arXiv:2503.14476)."""
    clip_ratio_c: Annotated[float, Field(gt=1.0, le=1e4)] = 3.0
    """Of `dual_clip`: a token's loss is at most -advantage times this."""
    cispo: CispoSpec = CispoSpec()
    """Of `cispo`: the bounds of its importance weights."""
    loss_reduction: Literal["token_mean", "sequence_mean", "seq_mean_token_sum_norm"] = "token_mean"
    """Reduction over a mini-batch, independent of micro-batches. `token_mean`: every token weighs
    the same; `sequence_mean`: every rollout weighs the same; `seq_mean_token_sum_norm`: a rollout's
    tokens are summed and divided by rollout.max_sequence_length, then averaged over rollouts (Dr.
    GRPO). `normalize_by` says which rollouts count."""
    normalize_by: Literal["gradient", "batch"] = "gradient"
    """Rollouts that the loss of a mini-batch is divided by. `gradient`: those that teach something,
    so that a step moves the policy as far with few of them as with many. `batch`: all that have a
    grade, as DAPO's and SkyRL's means do: a step moves less where groups score alike."""
    use_kl_loss: bool = False
    """Add the KL divergence from the policy that `model.source` names to the loss. Rollouts of
    groups in which all score the same are skipped here too. A checkpoint that was trained with
    another reference policy is refused."""
    kl_loss_coef: Annotated[float, Field(gt=0.0, le=100.0)] = 0.001
    """Weight of the KL divergence."""
    kl_estimator_type: Literal["k1", "k2", "k3"] = "k3"
    """Estimator per token from d = log-prob - reference log-prob (Schulman 2020): `k1` d, `k2` d
    squared over 2, `k3` exp(-d) - 1 + d. As a loss, `k1` pushes every sampled token down equally,
    which has no effect on average: use it to compare, not to constrain a policy."""
    off_policy_correction: OffPolicyCorrectionSpec = OffPolicyCorrectionSpec()
    """Corrections for rollouts of an older policy; by default, only the loss's ratio corrects."""
    apply_overlong_filtering: bool = False
    """Mask the tokens of rollouts truncated by a length limit (stop reasons `max_generate_length`
    and `max_input_length`) in the loss; their score stays in the group's baseline (DAPO,
    arXiv:2503.14476). Rollouts that ran out of turns or time are not masked."""
    step_wise: bool = False
    """Train on each model turn as its own sequence, with the preceding conversation as context and
    the rollout's advantage. With `token_mean` the gradient is that of whole rollouts, at a higher
    cost; wherever else a sequence counts, it is then a turn."""
    dynamic_sampling: DynamicSamplingSpec | None = None
    """Resample prompts whose groups carry no signal; null trains on the groups as sampled. The
    rollout metrics count all rollouts."""
    shuffle_rewards: bool = False
    """Control experiment: permute the rewards over the rollouts of a step, so that there is nothing
    to learn. The curve of such a run is the noise to compare with."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        kind = self.policy_loss_type
        if kind == "gspo" and self.loss_reduction != "sequence_mean":
            raise ValueError(
                f"policy_loss_type gspo averages over sequences, not by {self.loss_reduction}: set"
                " loss_reduction to sequence_mean"
            )
        reject_unused(self, ("clip_ratio_c",), only=("policy_loss_type", "dual_clip"))
        reject_unused(self, ("cispo",), only=("policy_loss_type", "cispo"))
        reject_unused(self, ("kl_loss_coef", "kl_estimator_type"), only=("use_kl_loss", True))
        if kind == "cispo":
            self._refuse_clips_that_cispo_does_not_read()
        return self

    def _refuse_clips_that_cispo_does_not_read(self) -> None:
        for key in ("eps_clip_low", "eps_clip_high"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"policy_loss_type cispo does not read {key}: set cispo.cispo_{key} instead"
                )


def refuse_clips_never_reached(algorithm: AlgorithmSpec) -> None:
    """Refuse clips of `gspo` that its ratio never reaches: nothing would bound an update.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if algorithm.policy_loss_type != "gspo":
        return
    for key in ("eps_clip_low", "eps_clip_high"):
        value = getattr(algorithm, key)
        if value > LARGEST_GSPO_CLIP:
            raise ValueError(
                f"policy_loss_type gspo has one ratio per sequence, a geometric mean that stays"
                f" within a few thousandths of 1, and {key} {value:g} would never clip it: set it"
                f" to {LARGEST_GSPO_CLIP:g} or less (the paper: eps_clip_low 3e-4, eps_clip_high"
                " 4e-4)"
            )
