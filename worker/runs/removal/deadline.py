"""The time that a sweep of deletions has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.deadlines import REMOVAL_S


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time until which a sweep works, so that the worker's other tasks are not late."""

    seconds: float = REMOVAL_S
    clock: Callable[[], float] = time.monotonic
    began: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """True once the sweep should leave the rest to the next one."""
        return self.clock() - self.began >= self.seconds
