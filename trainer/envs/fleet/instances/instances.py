"""The instances of one attempt: made under its tag, kept alive, deleted, and none forgotten.

Whatever happens to a rollout, its instance has an owner: who makes it until it runs, the episode
until it closes, then the deletion that is tried until it works, then the batch deletion by the
attempt's tag when the provider closes, then whoever sweeps after a trainer that was killed, and at
last the platform, which ends what sends no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trainer.envs.deadline import within
from trainer.envs.fleet.api import FleetApi, Instance, Json
from trainer.envs.fleet.faults import INSTANCE_LIMIT, WireFault
from trainer.envs.fleet.limiter import Limiter
from trainer.envs.fleet.persistence import Meter, Persistence

BEATS = 3
"""Heartbeats sent in the time after which the platform gives an instance up."""
DELETE_S = 6.0
"""How long a deletion is tried while a rollout closes; later ones go on in the background."""
CLOSE_S = 20.0
"""How long the provider's end may take: whoever waits for it has to wait longer."""
UNDO_S = 30.0
"""How long is asked what a creation made that nobody waits for any more."""
UNDOS = 4
"""Such questions at once: each may make the instance, outside of every limiter."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the instances of an attempt are held."""

    run_tag: str
    """`run_id` on the wire: names run and attempt, so that either can be swept by name."""
    ttl_s: int
    heartbeat_interval_s: int
    operation_s: float
    region: str | None = None

    def body(self) -> Json:
        """Return the part of `POST /v1/env/instances` that the attempt decides."""
        terms: Json = {
            "run_id": self.run_tag,
            "ttl_seconds": self.ttl_s,
            "heartbeat_interval": self.heartbeat_interval_s,
            "created_from": "sdk",
        }
        return terms | ({"region": self.region} if self.region else {})


@dataclass(slots=True, kw_only=True)
class _Creation:
    """One wish for an instance. Its id is the same each time it is sent."""

    api: FleetApi
    body: Json
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    may_exist: bool = False
    """Whether some request of it may have made the instance."""

    async def send(self) -> Instance:
        """Return the instance, made by this request or by an earlier one."""
        try:
            instance = await self.api.create(self.body, self.request_id)
        except BaseException as error:
            if not isinstance(error, WireFault) or error.may_be_done:
                self.may_exist = True
            raise
        self.may_exist = True
        return instance

    async def name(self) -> str:
        """Return the id of the instance, which is made now where it was not."""
        return await self.api.created(self.body, self.request_id)


@dataclass(slots=True)
class Instances:
    """Makes instances and answers for their end."""

    api: FleetApi
    terms: Terms
    _held: dict[str, Limiter] = field(default_factory=dict)
    _strays: set[asyncio.Task[None]] = field(default_factory=set)
    """Deletions in the background."""
    _undoing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNDOS))
    _beating: asyncio.Task[None] | None = None
    _is_closing: bool = False

    async def make(self, wish: Json, persistence: Persistence, limiter: Limiter) -> Instance:
        """Make an instance that runs. Where that fails, what was made on the way is deleted.

        Raises:
            WireFault: the platform makes none, or it does not come to run.
        """
        creation = _Creation(api=self.api, body=wish | self.terms.body())
        try:
            instance = await persistence.insist(
                "creation",
                creation.send,
                # Where the account is full, the slot is given back and waited for outside.
                may_repeat=lambda fault: fault.kind != INSTANCE_LIMIT,
            )
        except BaseException:
            if creation.may_exist:
                self._later(self._undo(creation))
            raise
        self._hold(instance.id, limiter)
        if instance.status == "running":
            return instance
        try:
            return await persistence.insist("the instance", partial(self._running, instance.id))
        except BaseException:
            self._let_go(instance.id)
            self._later(self.delete(instance.id))
            raise

    async def delete(self, instance_id: str) -> None:
        """Delete an instance; where that fails for now, it goes on in the background."""
        self._let_go(instance_id)
        try:
            with within(DELETE_S):
                await self._patient().insist("deletion", partial(self.api.delete, instance_id))
        except WireFault as fault:
            _log.info("instance %s is not deleted yet: %s", instance_id, fault)
            self._later(self._delete_at_last(instance_id))
        except BaseException:
            self._later(self._delete_at_last(instance_id))
            raise

    async def close(self) -> None:
        """Delete everything that carries the attempt's tag."""
        self._is_closing = True
        if self._beating is not None:
            self._beating.cancel()
        for task in self._strays:
            task.cancel()
        others = [task for task in (self._beating, *self._strays) if task is not None]
        await asyncio.gather(*others, return_exceptions=True)
        self._held.clear()
        with within(CLOSE_S):
            await delete_all(self.api, self.terms.run_tag, self._patient())

    async def _running(self, instance_id: str) -> Instance:
        found = await self.api.instance(instance_id)
        if found.status == "running":
            return found
        is_coming = found.status == "pending"
        raise WireFault(
            kind="pending" if is_coming else "not_started",
            message=f"instance {instance_id} is {found.status}",
            is_transient=is_coming,
            may_be_done=False,
        )

    async def _undo(self, creation: _Creation) -> None:
        """Delete what a creation made that nobody waits for: asked again, the platform names it.

        A few at once. One that waits until its silence has ended the instance is left to that.
        """
        try:
            async with asyncio.timeout(self.terms.heartbeat_interval_s):
                await self._undoing.acquire()
        except TimeoutError:
            _log.warning("an instance that may have been made is left to end by its silence")
            return
        try:
            with within(UNDO_S):
                instance_id = await self._patient().insist("what was made", creation.name)
        except WireFault as fault:
            _log.warning("an instance may be left that its silence ends: %s", fault)
            return
        finally:
            self._undoing.release()
        await self.delete(instance_id)

    async def _delete_at_last(self, instance_id: str) -> None:
        """Try a deletion that failed, as often as heartbeats are sent, until it works."""
        while True:
            await asyncio.sleep(self._pause_s)
            if await self._quietly(self.api.delete, instance_id, self.terms.operation_s):
                return

    def _hold(self, instance_id: str, limiter: Limiter) -> None:
        """Send heartbeats for an instance from now on."""
        self._held[instance_id] = limiter
        limiter.held += 1
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(
                self._beat(), name="fleet-heartbeat", context=Context()
            )

    def _let_go(self, instance_id: str) -> None:
        limiter = self._held.pop(instance_id, None)
        if limiter is not None:
            limiter.held -= 1

    @property
    def _pause_s(self) -> float:
        return self.terms.heartbeat_interval_s / BEATS

    async def _beat(self) -> None:
        """Send heartbeats until cancelled; one that hangs is given up when the next is due."""
        at_most_s = min(self.terms.operation_s, self._pause_s)
        await asyncio.sleep(self._pause_s)
        while True:
            beats = (self._quietly(self.api.heartbeat, each, at_most_s) for each in self._held)
            found = await asyncio.gather(
                asyncio.sleep(self._pause_s), *beats, return_exceptions=True
            )
            for each in found:
                if isinstance(each, Exception):
                    _log.warning("a heartbeat: nothing foresaw %r", each)

    async def _quietly(
        self, ask: Callable[[str], Awaitable[None]], instance_id: str, at_most_s: float
    ) -> bool:
        """Ask once, and say whether that worked."""
        try:
            async with asyncio.timeout(at_most_s):
                await ask(instance_id)
        except (WireFault, TimeoutError) as error:
            _log.info("instance %s: %s", instance_id, error or "no answer")
            return False
        return True

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the background, whatever the deadline of who asks for it."""
        if self._is_closing:
            work.close()
            return
        task = asyncio.create_task(work, context=Context())
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)

    def _patient(self) -> Persistence:
        return Persistence(operation_s=self.terms.operation_s, meter=Meter(), load=Limiter(1))


async def delete_all(api: FleetApi, run_tag: str, persistence: Persistence) -> int:
    """Delete every instance of a tag until the platform lists none; return how many there were.

    Raises:
        WireFault: they could not be deleted, or are still listed.
    """
    left = await persistence.insist("the list of instances", lambda: api.instances_of(run_tag))

    async def sweep() -> None:
        # Also where none is listed: one that is being made is not listed yet.
        await api.delete_run(run_tag)
        still = await api.instances_of(run_tag)
        if still:
            raise WireFault(
                kind="still_there",
                message=f"{len(still)} instances of {run_tag} are still listed",
                is_transient=True,
                may_be_done=False,
            )

    await persistence.insist("the batch deletion", sweep)
    return len(left)
