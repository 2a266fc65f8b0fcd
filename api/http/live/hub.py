"""Hub of a process: every watched run has one feed, and every feed reads once per wake-up.

The table is the truth; a wake-up only causes a read. A feed passes the same encoded bytes to all of
its clients through bounded queues. A client that falls behind loses its queue, but no events: it
reads the table from its own position.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from api.http.live.errors import ReadFailed
from api.tables.access.identity import Principal

QUEUE_BATCHES = 64
"""Batches a client may be behind before it must read the table itself."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Consecutive events of a run, encoded; `first > last` without any.

    `ended` is True when the run has ended and `last` is its last event.
    """

    first: int
    last: int
    frames: bytes
    ended: bool

    @property
    def is_empty(self) -> bool:
        """True when it has no event."""
        return self.first > self.last


Read = Callable[[str, int], Awaitable[FrameBatch]]
"""`read(run_id, after)` returns the next events of the table; raises ReadFailed."""


class Subscriber:
    """One client's queue of batches; `None` in it means that a flag changed."""

    def __init__(self, feed: Feed, *, queue_batches: int, caller: Principal | None = None) -> None:
        self.feed = feed
        self.caller = caller
        self.is_lagging = False
        self.is_closed = False
        self._queue: asyncio.Queue[FrameBatch | None] = asyncio.Queue(queue_batches)

    def offer(self, batch: FrameBatch) -> None:
        """Add a batch, or mark the client as lagging when its queue is full."""
        if self.is_lagging:
            return
        try:
            self._queue.put_nowait(batch)
        except asyncio.QueueFull:
            self.is_lagging = True
            self._replace_all()

    def close(self) -> None:
        """Wake the client to end its stream."""
        self.is_closed = True
        self._replace_all()

    def caught_up(self) -> None:
        """Reset the lag: the client is about to read the table itself."""
        self.is_lagging = False

    async def next(self, timeout_s: float) -> FrameBatch | None:
        """Return the next batch, or `None` when a flag changed; raises TimeoutError."""
        return await asyncio.wait_for(self._queue.get(), timeout_s)

    def _replace_all(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)


@dataclass(slots=True, kw_only=True, eq=False)
class Feed:
    """The clients of one run, and the position up to which the feed has read its events.

    `cursor` is unset until the first client has caught up with the table by itself: a long history
    never passes through queues.
    """

    run_id: str
    read: Read
    clients: set[Subscriber] = field(default_factory=set)
    cursor: int | None = None
    is_dirty: bool = False
    task: asyncio.Task[None] | None = None

    def start(self, cursor: int) -> None:
        """Follow the run after `cursor`, unless the feed already does."""
        if self.cursor is None:
            self.cursor = cursor
            if self.is_dirty:
                self.wake()

    def wake(self) -> None:
        """Schedule a read of the table; all wake-ups during a read cause one more read."""
        self.is_dirty = True
        if self.cursor is not None and self.task is None:
            self.task = asyncio.create_task(self._pump(self.cursor))

    async def _pump(self, cursor: int) -> None:
        try:
            while self.is_dirty and self.clients:
                self.is_dirty = False
                batch = await self.read(self.run_id, cursor)
                if batch.is_empty and not batch.ended:
                    continue
                self.cursor = cursor = batch.last
                # Behind a full page there may be events that no wake-up announces.
                self.is_dirty = not batch.ended
                for client in tuple(self.clients):
                    client.offer(batch)
        except ReadFailed as error:
            self.is_dirty = True
            log.warning(
                "events of %s cannot be read, waiting for a wake-up: %s", self.run_id, error
            )
        finally:
            self.task = None


class Hub:
    """The feeds of this process, by run."""

    def __init__(self, read: Read, *, queue_batches: int = QUEUE_BATCHES) -> None:
        self.read = read
        self.is_closed = False
        self._queue_batches = queue_batches
        self._feeds: dict[str, Feed] = {}

    def join(self, run_id: str, caller: Principal | None = None) -> Subscriber:
        """Subscribe to a run; the client catches up, then calls `client.feed.start`.

        The stream ends when `caller` may no longer read (`leases.py`).
        """
        feed = self._feeds.setdefault(run_id, Feed(run_id=run_id, read=self.read))
        client = Subscriber(feed, queue_batches=self._queue_batches, caller=caller)
        feed.clients.add(client)
        if self.is_closed:
            client.close()
        return client

    def leave(self, client: Subscriber) -> None:
        """Unsubscribe a client; the last one ends its feed."""
        feed = client.feed
        feed.clients.discard(client)
        if not feed.clients:
            self._feeds.pop(feed.run_id, None)
            if feed.task is not None:
                feed.task.cancel()

    def wake(self, run_id: str) -> None:
        """Wake the feed of a run, if it has one."""
        feed = self._feeds.get(run_id)
        if feed is not None:
            feed.wake()

    def wake_all(self) -> None:
        """Wake all feeds, after a time in which wake-ups may have been lost."""
        for feed in tuple(self._feeds.values()):
            feed.wake()

    @property
    def callers(self) -> frozenset[Principal]:
        """The callers of all open streams."""
        clients = (client for feed in self._feeds.values() for client in feed.clients)
        return frozenset(each.caller for each in clients if each.caller is not None)

    def close_streams_of(self, callers: frozenset[Principal]) -> None:
        """End the streams of these callers; their next request is refused."""
        for feed in tuple(self._feeds.values()):
            for client in tuple(feed.clients):
                if client.caller in callers:
                    client.close()

    def close(self) -> None:
        """End every stream; browsers reconnect to the next process by themselves."""
        self.is_closed = True
        for feed in tuple(self._feeds.values()):
            for client in tuple(feed.clients):
                client.close()

    @property
    def num_clients(self) -> int:
        """Number of open streams."""
        return sum(len(feed.clients) for feed in self._feeds.values())
