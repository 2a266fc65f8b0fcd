"""Health of environments during rollouts, reported by probes and measured in training."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from hillclimb.spec.documented import Documented


class _Facts(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OperationHealth(_Facts):
    """One kind of operation on an environment, over all tries of all rollouts."""

    num: Annotated[int, Field(ge=0)]
    """Number of requests."""
    num_failed: Annotated[int, Field(ge=0)]
    """Number of infra errors, and of verifications without a score."""
    p50_s: float | None = None
    """Median latency, failures included (seconds); null if there was no request."""
    p95_s: float | None = None
    """95th percentile of the latency (seconds)."""


class EnvHealth(_Facts):
    """Health of one environment."""

    num_tools: int | None = None
    """Tools offered, the maximum over tasks; null if no environment ever answered."""
    prompt_tokens_p50: float | None = None
    """Median length of the prompt, tools included (tokens)."""
    prompt_tokens_max: int | None = None
    """Longest prompt (tokens)."""
    reset: OperationHealth
    call: OperationHealth
    verification: OperationHealth
    infra_errors: dict[str, int]
    """Number of infra errors by code; retried ones count too."""
