"""Fan-out of a process: every watched run has one feed, every feed reads once per wake-up.

The table is the truth and a wake-up only says "look again". A feed hands the same encoded bytes
to all of its clients through bounded queues; a client that falls behind loses its queue, not its
events: it is told to read the table from where it stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from api.http.live.errors import ReadFailed

QUEUE_BATCHES = 64
"""Batches a client may be behind before it is sent back to the table."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Consecutive events of a run, encoded; `first > last` when there are none.

    `ended` is true when the run has ended and `last` is its last event.
    """

    first: int
    last: int
    frames: bytes
    ended: bool

    @property
    def is_empty(self) -> bool:
        """True when it holds no event."""
        return self.first > self.last


Read = Callable[[str, int], Awaitable[FrameBatch]]
"""`read(run_id, after)` gives the next events from the table; raises ReadFailed."""


class Subscriber:
    """One listener's mailbox: batches, or `None` for "look at my flags"."""

    def __init__(self, feed: Feed, *, queue_batches: int) -> None:
        self.feed = feed
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
        """Wake the client for good."""
        self.is_closed = True
        self._replace_all()

    def caught_up(self) -> None:
        """Forget the lag: the client is about to read the table itself."""
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
    """The clients of one run and how far the run has been read for them.

    `cursor` is unset until the first client has caught up with the table by itself, so that a
    long history is never pushed through queues.
    """

    run_id: str
    read: Read
    clients: set[Subscriber] = field(default_factory=set)
    cursor: int | None = None
    is_dirty: bool = False
    task: asyncio.Task[None] | None = None

    def start(self, cursor: int) -> None:
        """Begin to follow after `cursor`, unless the feed already follows."""
        if self.cursor is None:
            self.cursor = cursor
            if self.is_dirty:
                self.wake()

    def wake(self) -> None:
        """Read the table soon; wake-ups during a read cause one more read, not one each."""
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
                # A full page may have a successor that no wake-up will announce.
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
    """All feeds of this process."""

    def __init__(self, read: Read, *, queue_batches: int = QUEUE_BATCHES) -> None:
        self.read = read
        self.is_closed = False
        self._queue_batches = queue_batches
        self._feeds: dict[str, Feed] = {}

    def join(self, run_id: str) -> Subscriber:
        """Return a mailbox for the run; the caller catches up, then calls `client.feed.start`."""
        feed = self._feeds.setdefault(run_id, Feed(run_id=run_id, read=self.read))
        client = Subscriber(feed, queue_batches=self._queue_batches)
        feed.clients.add(client)
        if self.is_closed:
            client.close()
        return client

    def leave(self, client: Subscriber) -> None:
        """Forget the mailbox, and the feed with its last one."""
        feed = client.feed
        feed.clients.discard(client)
        if not feed.clients:
            self._feeds.pop(feed.run_id, None)
            if feed.task is not None:
                feed.task.cancel()

    def wake(self, run_id: str) -> None:
        """Tell the run's feed, if anyone watches it, that there is something new."""
        feed = self._feeds.get(run_id)
        if feed is not None:
            feed.wake()

    def wake_all(self) -> None:
        """Re-read every watched run: after a time in which wake-ups may have been lost."""
        for feed in tuple(self._feeds.values()):
            feed.wake()

    def close(self) -> None:
        """End every stream; browsers reconnect to the next process by themselves."""
        self.is_closed = True
        for feed in tuple(self._feeds.values()):
            for client in tuple(feed.clients):
                client.close()

    @property
    def num_clients(self) -> int:
        """Streams open now."""
        return sum(len(feed.clients) for feed in self._feeds.values())
