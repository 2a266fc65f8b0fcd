"""One operation of a rollout on its environment, with its duration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["reset", "call", "verification"]


@dataclass(frozen=True, slots=True)
class EnvOperation:
    """One operation: the time to its answer (seconds), and whether it failed.

    It failed if there was an infra error, or no score in the verifier's answer.

    Seconds in which the event loop could not have received the answer are not counted.
    """

    kind: Kind
    seconds: float
    failed: bool
