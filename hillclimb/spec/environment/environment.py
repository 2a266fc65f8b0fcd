"""The section `environment`: provider, deadlines, injected faults and overrides."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.environment.fleet import FleetSpec
from hillclimb.spec.environment.openenv import OpenEnvServer
from hillclimb.spec.section import EnvKey, Seconds, Section, Share, refuse_unnested


class FaultSpec(Section):
    """Faults injected into an environment, to test the robustness of a run."""

    reset_error_rate: Share = 0.0
    """Share of resets that fail, as if the environment did not start."""
    call_error_rate: Share = 0.0
    """Share of tool calls that get no response."""
    verifier_error_rate: Share = 0.0
    """Share of verifications that return no grade."""
    latency_s: Annotated[float, Field(ge=0.0, le=600.0)] = 0.0
    """Added to every reset, tool call and verification (seconds)."""
    latency_p99_s: Annotated[float, Field(gt=0.0, le=600.0)] | None = None
    """99th percentile of the latency (seconds), drawn from a lognormal distribution with median
    `latency_s`; null: the latency is constant."""

    @model_validator(mode="after")
    def _latencies_make_a_distribution(self) -> Self:
        if self.latency_p99_s is not None and not 0.0 < self.latency_s <= self.latency_p99_s:
            raise ValueError(
                f"latency_p99_s ({self.latency_p99_s:g}) is the slow end of a distribution whose"
                f" median is latency_s ({self.latency_s:g}): set latency_s between 0 and it"
            )
        return self


class EnvironmentOverride(Section):
    """Settings of one environment; null keeps the value of the section."""

    max_turns: Annotated[int, Field(ge=1, le=200)] | None = None
    """Model turns before the rollout is stopped."""
    call_timeout_s: Seconds | None = None
    """Deadline of one tool call (seconds)."""
    turn_timeout_s: Seconds | None = None
    """Deadline of one model turn with its calls (seconds)."""
    trajectory_timeout_s: Seconds | None = None
    """Deadline of a rollout (seconds)."""
    temperature: Annotated[float, Field(gt=0.0, le=5.0)] | None = None
    """Sampling temperature of training rollouts in this environment."""
    faults: FaultSpec | None = None
    """Injected faults of this environment."""


class EnvironmentSpec(Section):
    """Provider of the environments, deadlines and limits of rollouts, and injected faults."""

    provider: Literal["minifleet", "fleet", "openenv"] = "minifleet"
    """`minifleet`: the miniature Fleet apps shipped with Hillclimb, in the trainer's process.
    `fleet`: a platform with Fleet's API, such as `hillclimb fleet serve`. `openenv`: the OpenEnv
    servers that `openenv` names (docs/environments.md)."""
    fleet: FleetSpec = FleetSpec()
    """The platform of the provider `fleet`."""
    openenv: dict[EnvKey, OpenEnvServer] = Field(default_factory=dict)
    """The server of each environment of the provider `openenv`, by environment key."""
    max_turns: Annotated[int, Field(ge=1, le=200)] = 8
    """Model turns before a rollout is stopped; `grade_unfinished` decides how it is graded."""
    grade_unfinished: Literal["verifier", "zero"] | None = None
    """Grade of a rollout that reaches `max_turns`, `rollout.max_generate_length` or
    `rollout.max_input_length` before its policy is done. `verifier`: the state is graded as it is,
    with partial rewards if they are on. `zero`: 0, whatever the state. null: `verifier` for the
    provider `fleet`, whose own client grades such episodes, `zero` for the others. For one that
    ran out of time see `grade_late`."""
    grade_late: Literal["ungraded", "zero"] = "ungraded"
    """Grade of a rollout whose turn or trajectory ran out of time while the policy was sampled.
    `ungraded`: none, so it teaches nothing and shows in the coverage. A policy is answerable for
    its tokens, which have limits of their own; how fast they come is up to the engines and to who
    shares them. `zero`: 0."""
    call_timeout_s: Seconds = 30.0
    """Deadline of one tool call (seconds); exceeding it is an infra error."""
    reset_timeout_s: Seconds | None = None
    """Deadline of an environment's reset (seconds); null is `call_timeout_s`. Exceeding it is an
    infra error."""
    verifier_timeout_s: Seconds | None = None
    """Deadline of a verification (seconds); null is `call_timeout_s`. It runs even after the
    rollout's own deadline; if it exceeds this one, the rollout has no grade."""
    turn_timeout_s: Seconds | None = None
    """Deadline of one model turn with its calls (seconds); null is `trajectory_timeout_s`. The
    outcome depends on what used up the time, as for the whole rollout."""
    trajectory_timeout_s: Seconds = 300.0
    """Deadline of a rollout (seconds). If the policy used up the time, the rollout is graded 0; if
    the environment did, it is an infra error. An engine that stops responding ends the attempt."""
    infra_retry_allowance_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0
    """Time beyond `trajectory_timeout_s` for retries of a rollout (seconds), over all its tries:
    they share one clock."""
    max_infra_retries: Annotated[int, Field(ge=0, le=5)] = 2
    """Retries of a rollout that ended in an infra error (count)."""
    max_infra_error_rate: Share = 0.5
    """Share of a step's rollouts that may end without a grade (infra errors, verifiers that return
    none) before the run pauses."""
    max_concurrent_rollouts: Annotated[int, Field(ge=1, le=4096)] = 192
    """Rollouts in flight at once (count). Those for which an engine's cache has no room wait
    (docs/placement.md), which no deadline counts."""
    faults: FaultSpec = FaultSpec()
    """Injected faults, for all environments."""
    overrides: dict[EnvKey, EnvironmentOverride] = Field(default_factory=dict)
    """Settings of single environments, by environment key."""

    @model_validator(mode="after")
    def _faults_have_a_place(self) -> Self:
        faults = [self.faults, *(each.faults for each in self.overrides.values())]
        injected = any(each not in (None, FaultSpec()) for each in faults)
        if injected and self.provider != "minifleet":
            raise ValueError(
                f"faults are injected into minifleet only, and the provider is {self.provider}:"
                " leave faults out"
            )
        return self

    @model_validator(mode="after")
    def _instances_outlive_rollouts(self) -> Self:
        fleet = self.fleet
        if self.provider != "fleet":
            if fleet != FleetSpec():
                raise ValueError(
                    f"environment.fleet is read by the provider fleet, and this is {self.provider}:"
                    " set environment.provider to fleet or leave the section out"
                )
            return self
        if fleet.ttl_s is not None and fleet.ttl_s <= self.longest_rollout_s:
            raise ValueError(
                f"fleet.ttl_s ({fleet.ttl_s}) must be longer than a rollout may take"
                f" ({self.longest_rollout_s:g} s: trajectory_timeout_s, infra_retry_allowance_s,"
                " call_timeout_s and verifier_timeout_s): raise it or leave it out"
            )
        if fleet.operation_timeout_s is not None:
            own = (each.call_timeout_s for each in self.overrides.values())
            call_s = min([self.call_timeout_s, *(each for each in own if each)])
            refuse_unnested(
                "fleet.operation_timeout_s", fleet.operation_timeout_s, "call_timeout_s", call_s
            )
        return self

    @model_validator(mode="after")
    def _deadlines_nest(self) -> Self:
        for key, override in [("", EnvironmentOverride()), *self.overrides.items()]:
            call = override.call_timeout_s or self.call_timeout_s
            turn = override.turn_timeout_s or self.turn_timeout_s
            trajectory = override.trajectory_timeout_s or self.trajectory_timeout_s
            where = f" of {key}" if key else ""
            if turn is not None:
                refuse_unnested(f"call_timeout_s{where}", call, "turn_timeout_s", turn)
                refuse_unnested(f"turn_timeout_s{where}", turn, "trajectory_timeout_s", trajectory)
            refuse_unnested(f"call_timeout_s{where}", call, "trajectory_timeout_s", trajectory)
            if self.reset_timeout_s is not None:
                refuse_unnested(
                    f"reset_timeout_s{where}",
                    self.reset_timeout_s,
                    "trajectory_timeout_s",
                    trajectory,
                )
        return self

    @property
    def grades_unfinished(self) -> bool:
        """The verifier grades a rollout that reached a limit of turns or tokens."""
        default = "verifier" if self.provider == "fleet" else "zero"
        return (self.grade_unfinished or default) == "verifier"

    @property
    def longest_rollout_s(self) -> float:
        """Longest time from a rollout's first try to its grade in any environment (seconds)."""
        own = (each.trajectory_timeout_s for each in self.overrides.values())
        trajectory = max([self.trajectory_timeout_s, *(each for each in own if each)])
        retries = self.infra_retry_allowance_s if self.max_infra_retries else 0.0
        calls = [self.call_timeout_s, *(e.call_timeout_s or 0.0 for e in self.overrides.values())]
        # A call in flight at the deadline is awaited, and the grade follows.
        return trajectory + retries + max(calls) + (self.verifier_timeout_s or max(calls))
