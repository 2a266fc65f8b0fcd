"""The instances of one attempt: created under its tag, kept alive by heartbeats, and deleted.

At any time some party is responsible for deleting an instance: `FleetInstances.make` until it runs,
the episode until it closes, then the deletion that is retried until it succeeds, the batch deletion
by the attempt's tag when the provider closes, the sweep after a killed trainer, and finally the
platform, which ends instances without heartbeats.
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

from hillclimb.environment.deadline import within
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.wire.api import FleetApi, FleetInstance, Json
from trainer.envs.fleet.wire.faults import INSTANCE_LIMIT, WireFault
from trainer.envs.fleet.wire.retry import CallRetry, Meter

BEATS = 3
"""Heartbeats sent in the time after which the platform gives an instance up."""
DELETE_S = 6.0
"""How long a deletion is tried while a rollout closes; later ones go on in the background."""
CLOSE_S = 20.0
"""Timeout of the provider's `close`: its caller has to wait longer."""
UNDO_S = 30.0
"""Timeout of the request for the instance of an abandoned creation."""
UNDOS = 4
"""Most such requests at once: each may create an instance, which no limiter counts."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """Tag, lifetime and heartbeat of an attempt's instances."""

    run_tag: str
    """The API's `run_id`. It names run and attempt, so that a sweep can delete those of either."""
    ttl_s: int
    heartbeat_interval_s: int
    operation_s: float
    region: str | None = None

    def body(self) -> Json:
        """Return the part of `POST /v1/env/instances` that the attempt decides."""
        lease: Json = {
            "run_id": self.run_tag,
            "ttl_seconds": self.ttl_s,
            "heartbeat_interval": self.heartbeat_interval_s,
            "created_from": "sdk",
        }
        return lease | ({"region": self.region} if self.region else {})


@dataclass(slots=True, kw_only=True)
class _Creation:
    """Creation of one instance. Retries carry the same request id."""

    api: FleetApi
    body: Json
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    may_exist: bool = False
    """True where one of its requests may have created the instance."""

    async def send(self) -> FleetInstance:
        """Return the instance, created by this request or by an earlier one."""
        try:
            instance = await self.api.create(self.body, self.request_id)
        except BaseException as error:
            if not isinstance(error, WireFault) or error.may_be_done:
                self.may_exist = True
            raise
        self.may_exist = True
        return instance

    async def name(self) -> str:
        """Return the id of the instance; the request creates it if no earlier one did."""
        return await self.api.created(self.body, self.request_id)


@dataclass(slots=True)
class FleetInstances:
    """Creates instances, sends their heartbeats and deletes them."""

    api: FleetApi
    lease: LeaseOptions
    _owned: dict[str, Limiter] = field(default_factory=dict)
    _background: set[asyncio.Task[None]] = field(default_factory=set)
    """Deletions in the background."""
    _undo_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNDOS))
    _heartbeat_task: asyncio.Task[None] | None = None
    _is_closing: bool = False

    async def make(self, request: Json, retry: CallRetry, limiter: Limiter) -> FleetInstance:
        """Create an instance and wait until it runs; after a failure it is deleted.

        Raises:
            WireFault: the platform refused, or the instance does not start.
        """
        creation = _Creation(api=self.api, body=request | self.lease.body())
        try:
            instance = await retry.call(
                "creation",
                creation.send,
                # With a full account the caller releases the slot and waits for another one.
                may_repeat=lambda fault: fault.kind != INSTANCE_LIMIT,
            )
        except BaseException:
            if creation.may_exist:
                self._in_background(self._undo(creation, limiter), limiter)
            raise
        self._own(instance.id, limiter)
        if instance.status == "running":
            return instance
        try:
            return await retry.call("the instance", partial(self._running, instance.id))
        except BaseException:
            self._release(instance.id)
            self._in_background(self.delete(instance.id, limiter), limiter)
            raise

    async def delete(self, instance_id: str, limiter: Limiter | None = None) -> None:
        """Delete an instance; after a failure the deletion is retried in the background.

        `limiter` counts it until then, where nobody owns it any more.
        """
        limiter = self._release(instance_id) or limiter
        try:
            with within(DELETE_S):
                await self._call_retry().call("deletion", partial(self.api.delete, instance_id))
        except WireFault as fault:
            _log.info("instance %s is not deleted yet: %s", instance_id, fault)
            self._in_background(self._delete_eventually(instance_id), limiter)
        except BaseException:
            self._in_background(self._delete_eventually(instance_id), limiter)
            raise

    async def close(self) -> None:
        """Delete all instances with the attempt's tag."""
        self._is_closing = True
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
        for task in self._background:
            task.cancel()
        others = [task for task in (self._heartbeat_task, *self._background) if task is not None]
        await asyncio.gather(*others, return_exceptions=True)
        self._owned.clear()
        with within(CLOSE_S):
            await delete_all(self.api, self.lease.run_tag, self._call_retry())

    async def _running(self, instance_id: str) -> FleetInstance:
        instance = await self.api.instance(instance_id)
        if instance.status == "running":
            return instance
        is_coming = instance.status == "pending"
        raise WireFault(
            kind="pending" if is_coming else "not_started",
            message=f"instance {instance_id} is {instance.status}",
            is_transient=is_coming,
            may_be_done=False,
        )

    async def _undo(self, creation: _Creation, limiter: Limiter) -> None:
        """Delete the instance of an abandoned creation; a repeated request returns its id.

        At most `UNDOS` run at once. One that waits for a heartbeat interval gives up: without
        heartbeats the platform has ended the instance by then.
        """
        try:
            async with asyncio.timeout(self.lease.heartbeat_interval_s):
                await self._undo_slots.acquire()
        except TimeoutError:
            _log.warning("an instance may exist; it will expire without heartbeats")
            return
        try:
            with within(UNDO_S):
                instance_id = await self._call_retry().call("the id of the instance", creation.name)
        except WireFault as fault:
            _log.warning("an instance may exist; it will expire without heartbeats: %s", fault)
            return
        finally:
            self._undo_slots.release()
        await self.delete(instance_id, limiter)

    async def _delete_eventually(self, instance_id: str) -> None:
        """Retry a failed deletion once per heartbeat until it succeeds."""
        while True:
            await asyncio.sleep(self._pause_s)
            if await self._try_once(self.api.delete, instance_id, self.lease.operation_s):
                return

    def _own(self, instance_id: str, limiter: Limiter) -> None:
        """Add an instance to those that get heartbeats."""
        self._owned[instance_id] = limiter
        limiter.num_owned += 1
        if self._heartbeat_task is None or self._heartbeat_task.done():
            self._heartbeat_task = asyncio.create_task(
                self._send_heartbeats(), name="fleet-heartbeat", context=Context()
            )

    def _release(self, instance_id: str) -> Limiter | None:
        limiter = self._owned.pop(instance_id, None)
        if limiter is not None:
            limiter.num_owned -= 1
        return limiter

    @property
    def _pause_s(self) -> float:
        return self.lease.heartbeat_interval_s / BEATS

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until cancelled; one that hangs is cancelled when the next is due."""
        at_most_s = min(self.lease.operation_s, self._pause_s)
        await asyncio.sleep(self._pause_s)
        while True:
            beats = (self._try_once(self.api.heartbeat, name, at_most_s) for name in self._owned)
            outcomes = await asyncio.gather(
                asyncio.sleep(self._pause_s), *beats, return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    _log.warning("unknown error of a heartbeat: %r", outcome)

    async def _try_once(
        self, ask: Callable[[str], Awaitable[None]], instance_id: str, at_most_s: float
    ) -> bool:
        """Make one request and return whether it succeeded."""
        try:
            async with asyncio.timeout(at_most_s):
                await ask(instance_id)
        except (WireFault, TimeoutError) as error:
            _log.info("instance %s: %s", instance_id, error or "no answer")
            return False
        return True

    def _in_background(
        self, work: Coroutine[Any, Any, None], limiter: Limiter | None = None
    ) -> None:
        """Start a background task, outside of the caller's deadline.

        Until it ends, its instance has a slot of the limiter; but not for longer than the platform
        keeps an instance without heartbeats.
        """
        if self._is_closing:
            work.close()
            return
        task = asyncio.create_task(work, context=Context())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        if limiter is not None:
            release = limiter.occupy()
            task.add_done_callback(lambda _: release())
            loop = asyncio.get_running_loop()
            loop.call_later(self.lease.heartbeat_interval_s, release, context=Context())

    def _call_retry(self) -> CallRetry:
        return CallRetry(operation_s=self.lease.operation_s, meter=Meter(), load=Limiter(1))


async def delete_all(api: FleetApi, run_tag: str, retry: CallRetry) -> int:
    """Delete the instances of a tag until the platform lists none; return their number.

    Raises:
        WireFault: they could not be deleted, or are still listed.
    """
    instance_ids = await retry.call("the list of instances", lambda: api.instances_of(run_tag))

    async def sweep() -> None:
        # Send the deletion even if none is listed: an instance being created is not listed yet.
        await api.delete_run(run_tag)
        listed = await api.instances_of(run_tag)
        if listed:
            raise WireFault(
                kind="still_there",
                message=f"{len(listed)} instances of {run_tag} are still listed",
                is_transient=True,
                may_be_done=False,
            )

    await retry.call("the batch deletion", sweep)
    return len(instance_ids)
