"""A platform in virtual time that carries requests out late, whoever still waits for the answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainer.envs.fleet.wire.api import FleetInstance, Json
from trainer.envs.fleet.wire.faults import DUPLICATE, INSTANCE_LIMIT, WireFault

T = TypeVar("T")


def _refused(kind: str, *, may_be_done: bool = False, **detail: Any) -> WireFault:
    is_transient = kind not in (DUPLICATE, "not_found")
    return WireFault(
        kind=kind,
        message=kind,
        is_transient=is_transient,
        may_be_done=may_be_done,
        status=404 if kind == "not_found" else 403,
        detail=detail,
    )


@dataclass
class LatePlatform:
    """Instances by id, each with the tag of its run. It never ends one by itself."""

    rng: random.Random
    latest_s: float
    """Longest time until a request is carried out, and until its answer comes (seconds)."""
    limit: int
    alive: dict[str, str] = field(default_factory=dict)
    most: int = 0
    """Most instances at once."""
    num_created: int = 0
    _requests: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """True while a request is under way."""
        return bool(self._tasks)

    async def carry_out(self, work: Callable[[], T], *, is_quick: bool = False) -> T:
        """Do the work after a while, and answer after another one."""

        async def later() -> T:
            longest = 0.2 if is_quick else self.latest_s
            await asyncio.sleep(self.rng.uniform(0.0, longest))
            result = work()
            await asyncio.sleep(self.rng.uniform(0.0, longest))
            return result

        task = asyncio.create_task(later(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    def create(self, tag: str, request_id: str) -> str:
        """Create an instance, unless the request came before or the account is full."""
        if request_id in self._requests:
            raise _refused(DUPLICATE, instance_id=self._requests[request_id])
        if len(self.alive) >= self.limit:
            raise _refused(
                INSTANCE_LIMIT, running_instances=len(self.alive), instance_limit=self.limit
            )
        self.num_created += 1
        name = self._requests[request_id] = f"i{self.num_created}"
        self.alive[name] = tag
        self.most = max(self.most, len(self.alive))
        return name

    def delete_run(self, tag: str) -> None:
        """End all instances of a tag."""
        self.alive = {name: its for name, its in self.alive.items() if its != tag}


@dataclass
class LateClient:
    """The operations of `FleetApi` from one process; once it is killed, none is sent any more."""

    platform: LatePlatform
    is_killed: bool = False

    async def _ask(self, work: Callable[[], T], *, is_quick: bool = False) -> T:
        if self.is_killed:
            await asyncio.get_running_loop().create_future()
        answer: Awaitable[T] = self.platform.carry_out(work, is_quick=is_quick)
        return await answer

    async def create(self, body: Json, request_id: str) -> FleetInstance:
        return _running(await self.created(body, request_id))

    async def created(self, body: Json, request_id: str) -> str:
        try:
            return await self._ask(lambda: self.platform.create(str(body["run_id"]), request_id))
        except WireFault as fault:
            if fault.kind != DUPLICATE:
                raise
            return str(fault.detail["instance_id"])

    async def instance(self, instance_id: str) -> FleetInstance:
        return await self._ask(lambda: _running(instance_id))

    async def delete(self, instance_id: str) -> None:
        await self._ask(lambda: self.platform.alive.pop(instance_id, None))

    async def delete_run(self, run_tag: str) -> None:
        await self._ask(lambda: self.platform.delete_run(run_tag), is_quick=True)

    async def instances_of(self, run_tag: str) -> tuple[str, ...]:
        def listed() -> tuple[str, ...]:
            alive = self.platform.alive.items()
            return tuple(name for name, tag in alive if tag == run_tag)

        return await self._ask(listed, is_quick=True)

    async def heartbeat(self, instance_id: str) -> None:
        await self._ask(lambda: None, is_quick=True)


def _running(name: str) -> FleetInstance:
    return FleetInstance(id=name, status="running", root_url="", manager_url="")
