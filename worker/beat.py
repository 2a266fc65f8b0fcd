"""Celery's beat, which goes on when the clock is set.

It takes the time of a task's last run, and of the next one, by the clock. Set back by an hour, it
would send nothing for an hour: no worker would look at any run.
"""

from __future__ import annotations

import time

from celery.beat import PersistentScheduler

JUMP_S = 1.0
"""The clock is corrected by less all the time."""


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]
    """A scheduler whose periods begin anew whenever the clock has jumped."""

    _offset_s: float | None = None
    """The clock's time minus that since boot, which nobody sets."""

    def setup_schedule(self) -> None:
        """Read the schedule; a last run in the future is one by the clock as it was before."""
        super().setup_schedule()
        self._begin_anew()

    def tick(self) -> float:
        """Send what is due; return the seconds until something may be."""
        offset_s = time.time() - time.monotonic()
        if self._offset_s is not None and abs(offset_s - self._offset_s) > JUMP_S:
            self._begin_anew()
        self._offset_s = offset_s
        wait_s: float = super().tick()
        return wait_s

    def _begin_anew(self) -> None:
        for entry in self.schedule.values():
            entry.last_run_at = entry.default_now()
        self._heap = None
