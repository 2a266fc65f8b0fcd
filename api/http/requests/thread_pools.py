"""Threads of their own for requests that take long, so that short ones never wait for them.

The web framework runs ordinary functions in forty threads which all routes share. Forty requests
that each read a version from end to end, or wait for their file's turn, would hold up everything
else, from the health of the service to the trainers' reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from api.datasets.errors import DatasetsBusy

T = TypeVar("T")


class BoundedPool:
    """So many threads for one kind of work, and so many requests that may wait for one of them."""

    def __init__(self, *, threads: int, waiting: int) -> None:
        self._limiter = CapacityLimiter(threads)
        self._waiting = waiting

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a thread."""
        return self._limiter.statistics().tasks_waiting

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` does in one of the threads; raises DatasetsBusy when too many wait."""
        if self.num_waiting >= self._waiting:
            raise DatasetsBusy("Too many requests for datasets are waiting: try again in a minute.")
        return await run_sync(work, limiter=self._limiter)


@dataclass(frozen=True, slots=True)
class DatasetPools:
    """The kinds of work on datasets that take long."""

    works: BoundedPool = field(default_factory=lambda: BoundedPool(threads=6, waiting=12))
    """Making, linting and comparing versions: seconds to minutes, two at once (`process`)."""
    reads: BoundedPool = field(default_factory=lambda: BoundedPool(threads=6, waiting=60))
    """Pages and files of versions: up to a pass over all of its tasks."""
