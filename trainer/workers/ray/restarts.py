"""Restarts of worker processes: detection by incarnation, and counters summed over restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainer.engines.base import EngineStats, sum_stats

IDLE = EngineStats(num_sampled_tokens=0, num_prefill_tokens=0, num_cached_tokens=0, busy_s=0.0)


class RestartTracker:
    """Detects restarts: a reply of another incarnation than the one before."""

    def __init__(self, on_restart: Callable[[], None]) -> None:
        self._on_restart = on_restart
        self._incarnation: str | None = None

    def observe(self, incarnation: str) -> bool:
        """Record the incarnation of a reply; return True after a restart."""
        is_restarted = self._incarnation not in (None, incarnation)
        if is_restarted:
            self._on_restart()
        self._incarnation = incarnation
        return is_restarted


class CumulativeStats:
    """An engine's counters summed over all incarnations of its process, each starting at 0."""

    def __init__(self) -> None:
        self._past = self._now = IDLE

    @property
    def total(self) -> EngineStats:
        """Sum over all incarnations; counts after the last reply of one are lost."""
        return sum_stats([self._past, self._now])

    def reset(self) -> None:
        """Begin a new incarnation."""
        # The size of the cache is no count: the next process has one of its own.
        self._past, self._now = replace(self.total, num_cache_tokens=0), IDLE

    def update(self, stats: EngineStats) -> None:
        """Set the counters of the current incarnation; replies that arrive late are ignored."""
        if stats.busy_s >= self._now.busy_s:
            # The engine blocks its own process's event loop, not this one's.
            self._now = replace(stats, loop_blocked_s=0.0)
