"""How the environments behaved towards rollouts: what a probe reports and training measures."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class _Facts(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class OperationHealth(_Facts):
    """One kind of operation on an environment, over all tries of all rollouts."""

    num: Annotated[int, Field(ge=0)]
    """How often it was asked for."""
    num_failed: Annotated[int, Field(ge=0)]
    """How often it ended in an infra error, or a verifier answered without a score."""
    p50_s: float | None = None
    """Median time to the answer, failures included (seconds); null where it was never asked for."""
    p95_s: float | None = None
    """95 % of the answers took at most this (seconds)."""


class EnvHealth(_Facts):
    """One environment as rollouts met it."""

    num_tools: int | None = None
    """Tools offered, the most of any task; null where none ever answered."""
    prompt_tokens_p50: float | None = None
    """Median length of the prompt, tools included (tokens)."""
    prompt_tokens_max: int | None = None
    """Longest prompt (tokens)."""
    reset: OperationHealth
    call: OperationHealth
    verification: OperationHealth
    infra_errors: dict[str, int]
    """How often each infra error was met, by code; tries that were repeated count too."""
