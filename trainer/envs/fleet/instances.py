"""The instances of one attempt: made under its tag, kept alive, deleted, and none forgotten.

Whatever happens to a rollout, its instance has an owner: the episode until it closes, then the
deletion that is tried again with every heartbeat, then the batch deletion by the attempt's tag when
the provider closes, then whoever sweeps after a trainer that was killed, and at last the platform,
which ends what sends no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from trainer.envs.deadline import within
from trainer.envs.fleet.api import FleetApi, Instance, Json
from trainer.envs.fleet.faults import WireFault
from trainer.envs.fleet.limiter import Limiter
from trainer.envs.fleet.persistence import Meter, Persistence

BEATS = 3
"""Heartbeats sent in the time after which the platform gives an instance up."""
DELETE_S = 6.0
"""How long a deletion is tried while a rollout closes; later ones go on in the background."""
CLOSE_S = 20.0
_STRAY_S = 30.0
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


@dataclass(slots=True)
class Instances:
    """Makes instances and answers for their end."""

    api: FleetApi
    terms: Terms
    _held: dict[str, Limiter] = field(default_factory=dict)
    _undeleted: set[str] = field(default_factory=set)
    _strays: set[asyncio.Task[None]] = field(default_factory=set)
    _beating: asyncio.Task[None] | None = None

    @property
    def num_held(self) -> int:
        """Instances that episodes hold now."""
        return len(self._held)

    async def make(self, wish: Json, persistence: Persistence, limiter: Limiter) -> Instance:
        """Make an instance that runs. One that is made after the caller gave up is deleted.

        Raises:
            WireFault: the platform makes none.
        """
        making = asyncio.create_task(self._make(wish, persistence))
        try:
            instance = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(self._delete_stray(making))
            raise
        self._held[instance.id] = limiter
        limiter.held += 1
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat(), name="fleet-heartbeat")
        if instance.status == "running":
            return instance
        return await persistence.insist("the instance", partial(self._running, instance.id))

    async def delete(self, instance_id: str) -> None:
        """Delete an instance; where that fails for now, it goes on in the background."""
        limiter = self._held.pop(instance_id, None)
        if limiter is not None:
            limiter.held -= 1
        self._undeleted.add(instance_id)
        with suppress(WireFault), within(DELETE_S):
            await self._patient().insist("deletion", partial(self.api.delete, instance_id))
            self._undeleted.discard(instance_id)

    async def close(self) -> None:
        """Delete everything that carries the attempt's tag."""
        if self._beating is not None:
            self._beating.cancel()
        for task in self._strays:
            task.cancel()
        others = [task for task in (self._beating, *self._strays) if task is not None]
        await asyncio.gather(*others, return_exceptions=True)
        self._held.clear()
        with within(CLOSE_S):
            await delete_all(self.api, self.terms.run_tag, self._patient())

    async def _make(self, wish: Json, persistence: Persistence) -> Instance:
        body, request_id = wish | self.terms.body(), uuid.uuid4().hex
        return await persistence.insist(
            "creation",
            lambda: self.api.create(body, request_id),
            # Where the account is full, the slot is given back and waited for outside.
            may_repeat=lambda fault: fault.kind != "instance_limit_exceeded",
        )

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

    async def _delete_stray(self, making: asyncio.Task[Instance]) -> None:
        """Delete an instance that nobody waits for any more, as soon as it is there."""
        with suppress(WireFault):
            instance = await making
            with within(_STRAY_S):
                await self.delete(instance.id)

    async def _beat(self) -> None:
        """Send heartbeats, and try the deletions that failed, until cancelled."""
        while True:
            await asyncio.sleep(self.terms.heartbeat_interval_s / BEATS)
            await asyncio.gather(
                *(self._quietly(self.api.heartbeat, each) for each in list(self._held)),
                *(self._delete_again(each) for each in list(self._undeleted)),
            )

    async def _delete_again(self, instance_id: str) -> None:
        if await self._quietly(self.api.delete, instance_id):
            self._undeleted.discard(instance_id)

    async def _quietly(self, ask: Callable[[str], Awaitable[None]], instance_id: str) -> bool:
        """Ask once; what fails is asked again with the next beat."""
        try:
            async with asyncio.timeout(self.terms.operation_s):
                await ask(instance_id)
        except (WireFault, TimeoutError) as error:
            _log.info("instance %s: %s", instance_id, error)
            return False
        return True

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
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
