"""Limits of one rollout, after the overrides of its environment."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hillclimb.spec.environment.environment import EnvironmentOverride, EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """Bounds of one rollout: turns, tokens, seconds."""

    max_turns: int
    max_input_length: int
    max_generate_length: int
    max_sequence_length: int
    call_timeout_s: float
    reset_timeout_s: float
    verifier_timeout_s: float
    turn_timeout_s: float
    trajectory_timeout_s: float
    infra_retry_allowance_s: float
    """Added to `trajectory_timeout_s` for a retry."""
    grades_unfinished: bool = False
    """The verifier grades a rollout that reached a limit of turns or tokens; else it is graded 0.
    """
    zero_if_late: bool = False
    """A rollout that ran out of time while it was sampled is graded 0; else it has no grade."""


def without_deadlines(limits: RolloutLimits) -> RolloutLimits:
    """Return the same limits of turns and tokens, without any of time."""
    return replace(
        limits,
        call_timeout_s=math.inf,
        reset_timeout_s=math.inf,
        verifier_timeout_s=math.inf,
        turn_timeout_s=math.inf,
        trajectory_timeout_s=math.inf,
    )


def limits_for(env_key: str, environment: EnvironmentSpec, rollout: RolloutSpec) -> RolloutLimits:
    """Return the limits of rollouts in one environment."""
    override = environment.overrides.get(env_key, EnvironmentOverride())
    call_s = override.call_timeout_s or environment.call_timeout_s
    trajectory_s = override.trajectory_timeout_s or environment.trajectory_timeout_s
    return RolloutLimits(
        max_turns=override.max_turns or environment.max_turns,
        max_input_length=rollout.max_input_length,
        max_generate_length=rollout.max_generate_length,
        max_sequence_length=rollout.max_sequence_length,
        call_timeout_s=call_s,
        reset_timeout_s=environment.reset_timeout_s or call_s,
        verifier_timeout_s=environment.verifier_timeout_s or call_s,
        turn_timeout_s=override.turn_timeout_s or environment.turn_timeout_s or trajectory_s,
        trajectory_timeout_s=trajectory_s,
        infra_retry_allowance_s=environment.infra_retry_allowance_s,
        grades_unfinished=environment.grades_unfinished,
        zero_if_late=environment.grade_late == "zero",
    )


def training_temperature(env_key: str, environment: EnvironmentSpec, rollout: RolloutSpec) -> float:
    """Return the sampling temperature of training rollouts in one environment."""
    override = environment.overrides.get(env_key, EnvironmentOverride())
    return override.temperature or rollout.temperature
