"""Processes that die and are started again: who answers, and what was counted over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainer.engines.base import EngineStats, sum_stats

IDLE = EngineStats(num_sampled_tokens=0, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0)


class Lives:
    """Notices when a process that answers is not the one that answered before."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note
        self._life: str | None = None

    def seen(self, life: str) -> bool:
        """Take note of who answered; return whether it is another one than before."""
        is_other = self._life not in (None, life)
        if is_other:
            self._note()
        self._life = life
        return is_other


class Counters:
    """An engine's counters over all lives of its process, each of which begins at 0."""

    def __init__(self) -> None:
        self._past = self._now = IDLE

    @property
    def total(self) -> EngineStats:
        """Of all lives; what a life counted after its last answer is lost."""
        return sum_stats([self._past, self._now])

    def begin_life(self) -> None:
        """The process was started again."""
        self._past, self._now = self.total, IDLE

    def told(self, stats: EngineStats) -> None:
        """Take the counters of this life; answers may come late."""
        if stats.busy_s >= self._now.busy_s:
            # Nothing of it keeps the loop of this process from running.
            self._now = replace(stats, loop_blocked_s=0.0)
