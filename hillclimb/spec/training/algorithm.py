"""The section of the policy-gradient step: what the loss is made of, named as in SkyRL.

A setting that another one leaves without effect is refused, so that no run claims what it did not
do.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.contract.section import Section, refuse_unread

Ratio = Annotated[float, Field(gt=0.0, le=1e4)]


class CispoSpec(Section):
    """Bounds of CISPO's importance weights (arXiv:2506.13585, equation 5)."""

    cispo_eps_clip_low: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Weights are at least 1 - cispo_eps_clip_low; 1 sets no lower bound, as in the paper."""
    cispo_eps_clip_high: Annotated[float, Field(gt=0.0, le=100.0)] = 5.0
    """Weights are at most 1 + cispo_eps_clip_high."""


class OffPolicyCorrectionSpec(Section):
    """What is done where the policy that sampled is not the one that the step begins with.

    Any of it makes the learner score every rollout before the first update of the step: r is that
    probability over the one of sampling, and the clipped ratio of the loss starts at 1.
    """

    tis_ratio_type: Literal["token", "sequence"] | None = None
    """Truncated importance sampling: weigh each token's loss by r, its own (`token`) or the product
    over its sequence (`sequence`), cut off above; null does not."""
    token_tis_ratio_clip_high: Ratio = 2.0
    """Largest weight of `token`."""
    sequence_tis_ratio_clip_high: Ratio = 5.0
    """Largest weight of `sequence`."""
    sequence_mask_metric: Literal["product", "geometric"] | None = None
    """Leave out of the policy loss the sequences whose r, product or geometric mean over the
    tokens, is out of bounds; they stay in the denominator of the mean. null leaves out none."""
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
        """Whether anything is corrected."""
        return self.tis_ratio_type is not None or self.sequence_mask_metric is not None

    @property
    def mask_bounds(self) -> tuple[float, float]:
        """Least and largest r of a sequence that stays, by the chosen metric."""
        if self.sequence_mask_metric == "product":
            return self.product_mask_low, self.product_mask_high
        return self.geo_mask_low, self.geo_mask_high

    @model_validator(mode="after")
    def _bounds_are_in_order_and_read(self) -> Self:
        by_product = ("product_mask_low", "product_mask_high")
        by_mean = ("geo_mask_low", "geo_mask_high")
        refuse_unread(self, ("token_tis_ratio_clip_high",), only=("tis_ratio_type", "token"))
        refuse_unread(self, ("sequence_tis_ratio_clip_high",), only=("tis_ratio_type", "sequence"))
        refuse_unread(self, by_product, only=("sequence_mask_metric", "product"))
        refuse_unread(self, by_mean, only=("sequence_mask_metric", "geometric"))
        low, high = self.mask_bounds
        if low >= high:
            raise ValueError(
                f"the bounds of sequence_mask_metric ({low:g} and {high:g}) leave nothing between:"
                " lower the first or raise the second"
            )
        return self


class DynamicSamplingSpec(Section):
    """Sample until a step has groups in which rollouts scored differently: only those teach."""

    type: Literal["filter", "replace"]
    """`filter`: a prompt whose rollouts scored alike is followed by another one, so that every
    group of a step teaches (DAPO, arXiv:2503.14476). `replace`: groups that do not teach are
    replaced by copies of those that do; a batch with too few of these is thrown away and drawn
    again."""
    max_sample_batches: Annotated[int, Field(ge=2, le=1000)] = 30
    """Prompts that one place of a batch may draw (`filter`), or batches that one step may draw
    (`replace`). Then the step makes do with the last, and an event says so."""
    min_replace_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.3
    """Of `replace`: more than this share of a batch's groups must teach."""

    @model_validator(mode="after")
    def _ratio_is_read(self) -> Self:
        refuse_unread(self, ("min_replace_ratio",), only=("type", "replace"))
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
    (arXiv:2507.18071), which takes far tighter clips (the paper: 3e-4 and 4e-4). `cispo`: the ratio
    is a bounded weight and every token keeps its gradient (arXiv:2506.13585)."""
    eps_clip_low: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Lower clip of the probability ratio: 1 - eps_clip_low."""
    eps_clip_high: Annotated[float, Field(gt=0.0, le=10.0)] = 0.28
    """Upper clip of the probability ratio: 1 + eps_clip_high (DAPO, arXiv:2503.14476)."""
    clip_ratio_c: Annotated[float, Field(gt=1.0, le=1e4)] = 3.0
    """Of `dual_clip`: a token's loss is at most -advantage times this."""
    cispo: CispoSpec = CispoSpec()
    """Of `cispo`: the bounds of its weights."""
    loss_reduction: Literal["token_mean", "sequence_mean", "seq_mean_token_sum_norm"] = "token_mean"
    """Over a mini-batch, however it is cut. `token_mean`: every token weighs the same;
    `sequence_mean`: every rollout does; `seq_mean_token_sum_norm`: a rollout's tokens are summed
    and divided by rollout.max_sequence_length, then averaged over rollouts (Dr. GRPO). Rollouts
    without a gradient are not counted."""
    use_kl_loss: bool = False
    """Add the divergence from the policy that `model.source` names to the loss. Rollouts of groups
    in which all scored alike are skipped here too. A checkpoint is refused where it was compared
    with another policy."""
    kl_loss_coef: Annotated[float, Field(gt=0.0, le=100.0)] = 0.001
    """Weight of that divergence."""
    kl_estimator_type: Literal["k1", "k2", "k3"] = "k3"
    """How a token estimates it from d = log-prob - reference log-prob (Schulman 2020): `k1` d,
    `k2` d squared over 2, `k3` exp(-d) - 1 + d. As a loss, `k1` pushes every drawn token down
    alike, which has no effect on average: use it to compare, not to hold a policy."""
    off_policy_correction: OffPolicyCorrectionSpec = OffPolicyCorrectionSpec()
    """Corrections for rollouts of another policy; by default the ratio of the loss does it all."""
    apply_overlong_filtering: bool = False
    """Keep the tokens of rollouts that a length limit cut off (stop reasons `max_generate_length`
    and `max_input_length`) out of the loss; their score stays in the group's baseline (DAPO,
    arXiv:2503.14476). Too many turns or too much time is the policy's own doing and stays in."""
    step_wise: bool = False
    """Learn from each model turn as a sequence of its own, with what came before as context and the
    rollout's advantage. With `token_mean` the gradient is that of whole rollouts, at a higher
    price; wherever else a sequence counts, it is then a turn."""
    dynamic_sampling: DynamicSamplingSpec | None = None
    """Draw prompts again whose rollouts have nothing to teach; null learns from what there is. The
    metrics of rollouts count all that were made."""
    shuffle_rewards: bool = False
    """Control experiment: permute the rewards over the rollouts of a step, so that nothing true
    can be learned. The curve of such a run is the noise to compare with."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        kind = self.policy_loss_type
        if kind == "gspo" and self.loss_reduction != "sequence_mean":
            raise ValueError(
                f"policy_loss_type gspo averages over sequences, not by {self.loss_reduction}: set"
                " loss_reduction to sequence_mean"
            )
        refuse_unread(self, ("clip_ratio_c",), only=("policy_loss_type", "dual_clip"))
        refuse_unread(self, ("cispo",), only=("policy_loss_type", "cispo"))
        refuse_unread(self, ("kl_loss_coef", "kl_estimator_type"), only=("use_kl_loss", True))
        if kind == "cispo":
            self._refuse_clips_that_cispo_does_not_read()
        return self

    def _refuse_clips_that_cispo_does_not_read(self) -> None:
        for key in ("eps_clip_low", "eps_clip_high"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"policy_loss_type cispo does not read {key}: set cispo.cispo_{key} instead"
                )
