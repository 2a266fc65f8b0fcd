"""Separate thread pools for slow requests, so that fast ones never wait, and for frequent ones.

The web framework runs synchronous routes in forty shared threads. Forty requests that each read a
whole version, or wait for a free process, would block all other routes, from health checks to
ingest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from api.admission.imports.errors import ImportsBusy
from api.datasets.errors import DatasetsBusy

T = TypeVar("T")


class BoundedPool:
    """A limited number of threads for one kind of work, and of requests that wait for one."""

    def __init__(
        self,
        *,
        threads: int,
        waiting: int,
        busy: type[Exception] = DatasetsBusy,
        requests: str = "dataset requests",
    ) -> None:
        self._limiter = CapacityLimiter(threads)
        self._waiting = waiting
        self._busy, self._requests = busy, requests

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for a thread."""
        return self._limiter.statistics().tasks_waiting

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, run in a thread; raises `busy` when too many wait."""
        if self.num_waiting >= self._waiting:
            raise self._busy(f"Too many {self._requests} are waiting: try again in a minute.")
        return await run_sync(work, limiter=self._limiter)


@dataclass(frozen=True, slots=True)
class DatasetPools:
    """Thread pools for slow work on files."""

    works: BoundedPool = field(default_factory=lambda: BoundedPool(threads=6, waiting=12))
    """Creating, linting and comparing versions: seconds to minutes, two at once (`process`)."""
    reads: BoundedPool = field(default_factory=lambda: BoundedPool(threads=6, waiting=60))
    """Pages and files of versions: up to a pass over all of its tasks."""
    imports: BoundedPool = field(
        default_factory=lambda: BoundedPool(
            threads=2, waiting=8, busy=ImportsBusy, requests="imports"
        )
    )
    """Imports of past runs: each reads its lines one by one, up to some hundred MB at once."""


class FewThreads:
    """Threads of a kind of request that computes more than it waits.

    Sixteen such requests in as many threads take the interpreter from each other. Of submissions
    over 16 connections the slowest in a hundred took 88 to 97 ms with four threads, 90 to 99 with
    three, 94 to 105 with two, 90 to 102 with five and 92 to 98 with six (four to eight turns of
    1,000, with 0 and with 4,000 queued).
    """

    def __init__(self, threads: int) -> None:
        self._limiter = CapacityLimiter(threads)

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, run in a thread once one is free."""
        return await run_sync(work, limiter=self._limiter)


@dataclass(frozen=True, slots=True)
class RunPools:
    """Thread pools for the most frequent requests of people and scripts."""

    submissions: FewThreads = field(default_factory=lambda: FewThreads(4))
    lists: FewThreads = field(default_factory=lambda: FewThreads(3))
