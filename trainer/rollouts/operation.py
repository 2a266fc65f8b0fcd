"""One operation of a rollout on its environment, with its duration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["reset", "call", "verification"]


@dataclass(frozen=True, slots=True)
class EnvOperation:
    """One operation: the time until its response (seconds), and whether it failed.

    An operation failed if it raised an infra error, or if the verifier returned no score. Seconds
    in which the event loop could not receive the response are not counted.
    """

    kind: Kind
    seconds: float
    failed: bool
