"""Payloads of probes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.environments import EnvHealth, OperationHealth
from hillclimb.protocol.payloads.base import Payload


class OperationHealthPayload(OperationHealth, Payload):
    """One kind of operation on an environment, over all tries of all rollouts."""


class EnvHealthPayload(EnvHealth, Payload):
    """Health of one environment."""

    reset: OperationHealthPayload
    call: OperationHealthPayload
    verification: OperationHealthPayload


class PassRatePayload(Payload):
    """pass@k over the tasks of an environment; rates are in [0, 1]."""

    k: int
    value: float | None
    low: float
    high: float
    bound_if_failed: float
    bound_if_passed: float
    num_tasks: int
    num_tasks_total: int
    num_graded: int
    num_rollouts: int
    coverage: float
    """Share of rollouts with a grade."""


class SignalPayload(Payload):
    """Expected share of groups of one size that carry signal, in [0, 1]."""

    group_size: int
    value: float | None
    """Null where too few tasks have this many graded rollouts."""
    low: float
    high: float
    num_tasks: int
    method: str
    """`counted` or `unknown`."""


class BegunPayload(Payload):
    """Started rollouts of an environment, and those of them that met an infra error."""

    num_begun: int
    num_troubled: int


class EnvProbePayload(Payload):
    """Probe results of one environment."""

    verdict: str
    """`informative`, `saturated`, `hopeless`, `split`, `unhealthy` or `inconclusive`."""
    why: str
    """The verdict as a sentence with its numbers."""
    pass_rate: PassRatePayload
    begun: BegunPayload
    signal: SignalPayload
    """At the group size that the spec trains with."""
    shares: list[SignalPayload]
    """At each group size of the report."""
    advised_group_size: int | None
    health: EnvHealthPayload | None


class ProbePayload(Payload):
    """The results of a probe."""

    object: Literal["probe"] = "probe"
    run_id: str
    step: int
    attempt: int | None
    created_at: datetime
    complete: bool
    """False if it was stopped before every rollout had ended."""
    n_samples_per_prompt: int
    group_size: int
    pass_threshold: float
    temperatures: dict[str, float]
    duration_s: float
    environments: dict[str, EnvProbePayload]
    advised_group_size: int | None
    advice: str
    rule: str
    """Version of the rule of the verdicts."""
