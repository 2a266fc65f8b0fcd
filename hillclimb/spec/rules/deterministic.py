"""Rules of deterministic runs: no concurrent processes, and no clocks that decide an outcome."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.spec.environment.environment import EnvironmentOverride, EnvironmentSpec, FaultSpec
from hillclimb.spec.preflight.preflight import ProbeSpec
from hillclimb.spec.training.engine import EngineSpec
from hillclimb.spec.training.evaluation import EvalSpec
from hillclimb.spec.training.schedule import ScheduleSpec

DEADLINES = (
    "call_timeout_s",
    "reset_timeout_s",
    "verifier_timeout_s",
    "turn_timeout_s",
    "trajectory_timeout_s",
    "infra_retry_allowance_s",
)
"""Deadlines of rollouts: a deterministic run has only `schedule.step_timeout_s` instead."""


def refuse_what_races(engine: EngineSpec, placement: str, schedule: ScheduleSpec) -> None:
    """Refuse settings other than one process in which sampling and training alternate.

    Raises:
        ValueError: a sentence that names what to change.
    """
    for key, value, needed in (
        ("engine.type", engine.type, "torch"),
        ("placement.type", placement, "inline"),
        ("schedule.max_staleness_steps", schedule.max_staleness_steps, 0),
    ):
        if value != needed:
            raise ValueError(f"deterministic needs {key} {needed}, not {value}: set it so")


def refuse_clocks(
    environment: EnvironmentSpec, evaluation: EvalSpec, probe: ProbeSpec | None
) -> None:
    """Refuse settings by which elapsed time would change the results.

    Raises:
        ValueError: a sentence that names what to change.
    """
    for key in _deadlines_set(environment):
        raise ValueError(
            f"environment.{key} is set, but a deterministic run has no deadline within a step: the"
            " speed of the machine would decide outcomes. Leave it out; schedule.step_timeout_s"
            " ends a step that hangs"
        )
    if environment.provider != "minifleet":
        raise ValueError(
            "an environment server has state of its own: deterministic needs environment.provider"
            " minifleet"
        )
    faults = [environment.faults, *(each.faults for each in environment.overrides.values())]
    if any(each not in (None, FaultSpec()) for each in faults):
        raise ValueError(
            "injected faults are counted from the start of a process, so a deterministic run has"
            " none: leave environment.faults out"
        )
    if evaluation.budget_minutes is not None:
        raise ValueError(
            "eval.budget_minutes lets a clock decide what is evaluated: a deterministic run has"
            " none, so set it to null"
        )
    if probe is not None and probe.budget_minutes is not None:
        raise ValueError(
            "probe.budget_minutes lets a clock decide what is probed: a deterministic run has none,"
            " so set it to null"
        )


def _deadlines_set(environment: EnvironmentSpec) -> Iterator[str]:
    fields = EnvironmentSpec.model_fields
    yield from (key for key in DEADLINES if getattr(environment, key) != fields[key].default)
    for env_key, override in environment.overrides.items():
        for key in DEADLINES:
            if key in EnvironmentOverride.model_fields and getattr(override, key) is not None:
                yield f"overrides.{env_key}.{key}"
