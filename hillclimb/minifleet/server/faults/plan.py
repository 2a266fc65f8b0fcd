"""Fault rules of the server as data: rates, delays and time windows per operation."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hillclimb.minifleet.faults import Faults

Operation = Literal[
    "create",
    "get",
    "list",
    "delete",
    "heartbeat",
    "tasks",
    "account",
    "verify",
    "check",
    "reset",
    "resources",
    "initialize",
    "tool_list",
    "tool_call",
    "session",
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

Rate = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0, le=86_400.0)]


class FaultRule(BaseModel):
    """Faults of some operations; every rate is drawn separately for each request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: tuple[Operation | Literal["*"], ...] = ("*",)
    """Operations with these faults; `*` is all of them."""
    env_keys: tuple[str, ...] | None = None
    """Only requests about instances of these environments; null: all requests."""
    after_s: Seconds = 0.0
    """Start of the time window, counted from when the rule was added (seconds)."""
    for_s: Seconds | None = None
    """Length of the time window (seconds); null: until the rule is removed."""
    late_s: Seconds = 0.0
    """Most seconds until a creation is carried out, also where its client has gone by then; drawn
    evenly from 0. Until then no instance is listed."""
    latency_s: Seconds = 0.0
    latency_p99_s: Seconds | None = None
    """Null: `latency_s` is constant. Else it is the median of a lognormal distribution with this
    99th percentile."""
    error_rate: Rate = 0.0
    """Share of requests answered with `error_status`; nothing was done."""
    error_status: Literal[429, 500, 502, 503, 504] = 502
    retryable: bool | None = True
    """Value of `retryable` in an error's body; null: the body does not say."""
    lost_reply_rate: Rate = 0.0
    """Share of requests that are carried out and then answered with `error_status`."""
    hang_rate: Rate = 0.0
    """Share of requests that get no answer for `hang_s`, then 504; nothing was done."""
    hang_s: Seconds = 300.0
    expire_rate: Rate = 0.0
    """Share of requests to an instance that find its time to live over."""
    empty_tools_rate: Rate = 0.0
    empty_tools_first: Annotated[int, Field(ge=0)] = 0
    """Number of an instance's first tool lists that are empty, as while an environment starts."""
    crash_rate: Rate = 0.0
    """Share of verifications in which the verifier raises: `success` false with an error."""
    judge_error_rate: Rate = 0.0
    """Share of verifications that say 0 and have `JUDGE ERROR:` in their output."""
    no_result_rate: Rate = 0.0
    """Share of verifications with `success` true and no result."""

    @model_validator(mode="after")
    def _check_latency(self) -> Self:
        self.delays()
        return self

    def delays(self) -> Faults:
        """Return the distribution of the latency.

        Raises:
            ValueError: the 99th percentile lies below the median.
        """
        return Faults(latency_s=self.latency_s, latency_p99_s=self.latency_p99_s)

    def applies(self, operation: Operation, env_key: str | None, age_s: float) -> bool:
        """Tell whether this rule applies to a request, `age_s` after the rule was added."""
        if "*" not in self.on and operation not in self.on:
            return False
        if self.env_keys is not None and env_key not in self.env_keys:
            return False
        end = float("inf") if self.for_s is None else self.after_s + self.for_s
        return self.after_s <= age_s < end


class WireFaults(BaseModel):
    """A fault file: a seed and rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    """Equal seeds and equal requests of an instance, in equal order, get equal faults."""
    rules: tuple[FaultRule, ...] = ()
