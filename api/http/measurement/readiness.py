"""Readiness of a process: whether a request would get a thread, a connection and an answer now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import anyio.to_thread
from sqlalchemy.exc import OperationalError

from api.admission.refusals.acceptance.store import void_warnings
from api.clusters.cloud_worker import cloud_worker_warning
from api.queue import BrokerUnreachable, TaskQueue
from api.runs.journal import utc_now
from api.tables.database import Database, count_connections, read_schema, revision_fault

DEADLINE_S = 2.0
"""Longest time until an answer: a prober that waits as long for it knows why it gets none."""
POLL_S = 0.02

Check: TypeAlias = Callable[[], "Findings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Sentences about what a request would meet now."""

    faults: tuple[str, ...] = ()
    """Why requests cannot be served; empty for a process that is ready."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Readiness:
    """Looks at the parts of one API process, with threads and a connection of its own.

    The process's threads and its pool belong to requests: while they are all taken, readiness says
    so. A part that hangs has at most one thread here, however often readiness is looked at.
    """

    database: Database
    task_queue: TaskQueue
    _running: dict[str, asyncio.Task[Findings]] = field(default_factory=dict)

    async def look(self) -> Findings:
        """Return the findings within about `DEADLINE_S` seconds."""
        each = await asyncio.gather(
            self._room(),
            self._within("database", self._database),
            self._within("broker", self._broker),
        )
        return Findings(
            faults=tuple(fault for findings in each for fault in findings.faults),
            warnings=tuple(warning for findings in each for warning in findings.warnings),
        )

    async def _room(self) -> Findings:
        """Wait for a free thread, and then for a free connection, as a request would."""
        threads = anyio.to_thread.current_default_thread_limiter()
        resource = f"the API's {threads.total_tokens:g} threads"
        with anyio.move_on_after(DEADLINE_S):
            async with threads:
                resource = f"the API's {self.database.pool_size} database connections"
            while not self.database.has_free_connection:  # noqa: ASYNC110 (the pool has no event)
                await anyio.sleep(POLL_S)
            return Findings()
        fault = f"None of {resource} became free within {DEADLINE_S:g} s: requests wait for them."
        return Findings(faults=(fault,))

    async def _within(self, part: str, check: Check) -> Findings:
        """Return the findings of a check in a thread of its own, or that the part is silent."""
        task = self._running.get(part)
        if task is None or task.done():
            own_thread = anyio.CapacityLimiter(1)
            task = asyncio.create_task(anyio.to_thread.run_sync(check, limiter=own_thread))
            self._running[part] = task
        done, _ = await asyncio.wait({task}, timeout=DEADLINE_S)
        return task.result() if done else _silent(part)

    def _database(self) -> Findings:
        try:
            with self.database.probe() as session:
                if (fault := revision_fault(read_schema(session.connection()))) is not None:
                    return Findings(faults=(fault,))
                warnings = (
                    cloud_worker_warning(session, now=utc_now()),
                    count_connections(session).fault(),
                    *void_warnings(session),
                )
        except OperationalError:
            return _silent("database")
        return Findings(warnings=tuple(each for each in warnings if each is not None))

    def _broker(self) -> Findings:
        try:
            self.task_queue.check()
        except BrokerUnreachable:
            return _silent("broker")
        return Findings()


def _silent(part: str) -> Findings:
    return Findings(faults=(f"The {part} does not respond.",))
