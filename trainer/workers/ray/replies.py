"""Replies of Ray actors that may be restarted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A result, and the incarnation of the process that computed it."""

    value: T
    incarnation: str
    """Random id of the process; a restart draws a new one."""
    up_s: float = 0.0
    """Seconds for which the engine had been ready; only on replies of sampling and scoring."""
