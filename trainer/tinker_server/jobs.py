"""Futures of the protocol: one request starts a job, others fetch its result.

Jobs of models run one after the other: those of one owner in the order of their requests, and the
owners, which are sessions, take turns. Samples run beside them. Two requests with one key (a client
repeats one without a response) are one job. Jobs do not outlive the process: a request for a job of
an earlier server raises `Gone`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

from trainer.tinker_server.accounts import account_of
from trainer.tinker_server.errors import Busy, Gone, RequestRefused, TooManyJobs

Result: TypeAlias = dict[str, Any]
Work: TypeAlias = Callable[[], Awaitable[Result]]

KEEP_S = 600.0
"""Time for which a result can be fetched (seconds)."""
MAX_QUEUED = 512
"""Jobs of models of one session that wait; each has its data in memory."""
MAX_STARTED = 4_096
"""Samples of one session under way."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    key: Hashable
    work: Work
    owner: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    result: Result = field(default_factory=dict)
    done_at: float | None = None


class FutureTable:
    """All jobs of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._by_key: dict[Hashable, str] = {}
        self._queues: dict[str, deque[_Job]] = {}
        """Waiting jobs by their owner; none is empty, and the first owner has the next turn."""
        self._queued = asyncio.Event()
        self._started: defaultdict[str, dict[asyncio.Task[None], _Job]] = defaultdict(dict)
        self._worker: asyncio.Task[None] | None = None
        self.paused: dict[Hashable, str] = {}
        """Reasons of jobs that wait for room, by key."""

    def queue(self, key: Hashable, work: Work, *, owner: str) -> str:
        """Run `work` after the owner's other jobs; return the job's id. Raises TooManyJobs."""
        self._check(key, len(self._queues.get(owner, ())), MAX_QUEUED)
        job_id, job = self._enter(key, work, owner)
        if job is not None:
            self._queues.setdefault(owner, deque()).append(job)
            self._queued.set()
            if self._worker is None:
                self._worker = asyncio.create_task(self._work_off(), name="tinker-models")
        return job_id

    def start(self, key: Hashable, work: Work, *, owner: str) -> str:
        """Run `work` now, beside all other jobs; return the job's id. Raises TooManyJobs."""
        self._check(key, len(self._started.get(owner, ())), MAX_STARTED)
        job_id, job = self._enter(key, work, owner)
        if job is not None:
            task = asyncio.create_task(self._do(job))
            self._started[owner][task] = job
            task.add_done_callback(lambda ended: self._forget(owner, ended))
        return job_id

    def end(self, owner: str, why: str) -> None:
        """End the owner's jobs with an error, but one that is in the middle of a computation."""
        started = self._started.pop(owner, {})
        for task in started:
            task.cancel()
        for job in (*self._queues.pop(owner, ()), *started.values()):
            self._finish(job, {"error": why, "category": "server"})

    async def result(self, job_id: str, *, wait_s: float) -> Result | None:
        """Return a job's result, or None without one within `wait_s`.

        Raises:
            Gone: there is no such job.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise Gone(f"there is no request {job_id}: the server was restarted, or it is too old")
        try:
            async with asyncio.timeout(wait_s):
                await job.done.wait()
        except TimeoutError:
            return None
        return job.result

    def refuse_foreign(self, account: str, job_id: str) -> None:
        """Refuse to name a job of another account, as if there were none.

        Raises:
            Gone: there is no such job of this one.
        """
        job = self._jobs.get(job_id)
        if job is not None and account_of(job.owner) != account:
            raise Gone(f"there is no request {job_id}: it is another account's")

    def why_paused(self, job_id: str) -> str | None:
        """Return the reason for which a job waits for room, if it does."""
        job = self._jobs.get(job_id)
        return self.paused.get(job.key) if job is not None else None

    async def close(self) -> None:
        """Cancel all jobs."""
        tasks = {task for started in self._started.values() for task in started}
        tasks |= {self._worker} if self._worker else set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _check(self, key: Hashable, num_jobs: int, most: int) -> None:
        """Refuse a new job of an owner that has so many; a repeated request is no new one."""
        if num_jobs >= most and key not in self._by_key:
            raise TooManyJobs(f"this session has {most} requests under way: wait for their results")

    def _enter(self, key: Hashable, work: Work, owner: str) -> tuple[str, _Job | None]:
        self._sweep()
        job_id = self._by_key.get(key)
        if job_id is not None:
            return job_id, None
        job_id, job = f"req-{uuid4().hex}", _Job(key, work, owner)
        self._jobs[job_id], self._by_key[key] = job, job_id
        return job_id, job

    def _sweep(self) -> None:
        oldest = self._clock() - KEEP_S
        old = [
            name
            for name, job in self._jobs.items()
            if job.done_at is not None and job.done_at < oldest
        ]
        for name in old:
            del self._by_key[self._jobs.pop(name).key]

    async def _work_off(self) -> None:
        while True:
            while not self._queues:
                self._queued.clear()
                await self._queued.wait()
            owner, jobs = next(iter(self._queues.items()))
            job = jobs.popleft()
            # The owner's next job waits for one of each other owner.
            del self._queues[owner]
            if jobs:
                self._queues[owner] = jobs
            await self._do(job)

    async def _do(self, job: _Job) -> None:
        try:
            result = await job.work()
        except RequestRefused as refused:
            result = {"error": str(refused), "category": "user"}
        except Busy as busy:
            result = {"error": str(busy), "category": "server"}
        except Exception as fault:  # noqa: BLE001 - reported to the job's client
            _log.exception("a job failed")
            result = {"error": f"{type(fault).__name__}: {fault}", "category": "server"}
        self._finish(job, result)

    def _finish(self, job: _Job, result: Result) -> None:
        if job.done.is_set():
            return
        job.result, job.done_at = result, self._clock()
        job.done.set()

    def _forget(self, owner: str, ended: asyncio.Task[None]) -> None:
        self._started[owner].pop(ended, None)
        if not self._started[owner]:
            del self._started[owner]
