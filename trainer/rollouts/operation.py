"""The parts of a rollout: operations on its environment, and spans of its timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["reset", "call", "verification"]
SpanKind = Literal["queue", "sample", "reset", "call", "verification"]
"""`queue`: waiting for a slot of the environment's provider, or for room in the engine's cache.
`sample`: one turn of the policy."""


@dataclass(frozen=True, slots=True)
class EnvOperation:
    """One operation: the time until its response (seconds), and whether it failed.

    An operation failed if it raised an infra error, or if the verifier returned no score. Seconds
    in which the event loop could not receive the response are not counted.
    """

    kind: Kind
    seconds: float
    failed: bool


@dataclass(frozen=True, slots=True)
class RolloutSpan:
    """One part of a rollout with its time by the wall clock; spans never overlap."""

    kind: SpanKind
    began_s: float
    """Since the rollout began, waits in queues included (seconds)."""
    seconds: float
    failed: bool = False
    """It raised an error, or was cut off by a deadline."""
    label: str = ""
    """Name of the tool of a call."""
