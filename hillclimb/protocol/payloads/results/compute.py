"""Payloads of the ledger of compute."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hillclimb.protocol.payloads.base import Payload

Amount: TypeAlias = Literal["steps", "rollouts", "tokens", "flops"]
"""What two compared runs spend equally: steps; or for training, rejected rollouts included,
rollouts, tokens that the engines computed, or FLOPs of engines and learner."""


class ComputeAmounts(Payload):
    """Compute, rollouts that nothing was learned from included."""

    num_rollouts: int
    num_learned: int
    """Rollouts that an update learned from."""
    num_rejected: int
    """The others: replaced by dynamic sampling, without a grade, or without signal."""
    num_resampled: int
    """Rejected ones that dynamic sampling replaced."""
    num_ungraded: int
    """Rejected ones of the others that have no grade."""
    num_lost_tries: int
    """Tries that an infra error ended and another try repeated."""
    num_tokens: int
    """Tokens that the engines computed: drawn, and of prompts that no cache had."""
    num_sampled_tokens: int
    """Drawn by the engines."""
    num_prefill_tokens: int
    """Of prompts, computed by the engines."""
    num_cached_tokens: int
    """Of prompts, in an engine's cache."""
    num_trained_tokens: int
    """Of the sequences learned from, prompts included."""
    flops: float | None
    """Of engines and learner; null where a part is not known."""
    rollout_flops: float | None
    """Of the engines' forward passes."""
    train_flops: float | None
    """Of updates and scoring."""


class ComputeTotals(Payload):
    """Totals of training and of evaluations."""

    training: ComputeAmounts
    """Repeated and interrupted steps included."""
    evaluation: ComputeAmounts


class AttemptCompute(ComputeTotals):
    """Totals of one attempt."""

    attempt: int


class LedgerEntry(ComputeAmounts):
    """One training step or one evaluation of an attempt."""

    attempt: int
    step: int
    kind: Literal["train", "eval"]
    decoding: str
    """`train`, or the eval's; empty for an interrupted evaluation."""
    is_complete: bool
    """False if the end of the attempt interrupted it."""
    cumulative_rollouts: int
    """Of training, over all attempts up to and with this entry."""
    cumulative_tokens: int
    cumulative_flops: float | None


class ComputePayload(ComputeTotals):
    """The ledger of a run's compute, in the order in which it was spent."""

    object: Literal["compute"] = "compute"
    run_id: str
    is_complete: bool
    """False if the trainer did not count the compute of some steps."""
    num_repeated_steps: int
    """Training steps that a later attempt completed again."""
    attempts: list[AttemptCompute]
    rows: list[LedgerEntry]
