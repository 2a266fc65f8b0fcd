"""Hub of a process: every watched run has one feed, and every feed reads once per wake-up.

The table is the truth; a wake-up only causes a read. A feed passes the same encoded bytes to all of
its clients through bounded queues. A client that falls behind loses its queue, but no events: it
reads the table from its own position.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property

from api.http.live.errors import ReadFailed
from api.tables.access.errors import StreamsBusy, TooManyStreams
from api.tables.access.identity import Principal

QUEUE_BATCHES = 64
"""Batches a client may be behind before it must read the table itself."""
PAUSE_PER_CLIENT_S = 0.0001
LONGEST_PAUSE_S = 0.1
"""A feed reads at most once in as long as a batch takes to reach all of its clients (some 50 µs
each), twice over: a busy run's events then come in fewer batches, and its clients leave time for
other requests. One client waits for nothing."""
STREAMS_PER_KEY = 1_000
"""Open streams of one key, or of one person, in this process."""
STREAMS_PER_PROJECT = 2_000
MAX_STREAMS = 4_000
"""Of all projects: each takes memory, and a share of every event's time."""
RETRY_AFTER_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FrameBatch:
    """Consecutive events of a run, encoded, of which `first` is the first one's number.

    `is_page` is True when the table may have more of them behind it. `ended` is True when the run
    has ended and the last event is its last.
    """

    first: int
    events: tuple[bytes, ...]
    is_page: bool
    ended: bool

    @property
    def last(self) -> int:
        """Number of the last event; `first - 1` without any."""
        return self.first + len(self.events) - 1

    @cached_property
    def frames(self) -> bytes:
        """The frames of all events: the same bytes for every client."""
        return b"".join(self.events)

    def since(self, cursor: int) -> bytes:
        """Return the frames of the events after `cursor`, which is not before `first - 1`."""
        return self.frames if cursor < self.first else b"".join(self.events[cursor - self.last :])


Read = Callable[[str, int], Awaitable[FrameBatch]]
"""`read(run_id, after)` returns the next events of the table; raises ReadFailed."""


class Subscriber:
    """One client's queue of batches; `None` in it means that a flag changed."""

    def __init__(self, feed: Feed, *, queue_batches: int, caller: Principal | None = None) -> None:
        self.feed = feed
        self.caller = caller
        self.is_lagging = False
        self.is_closed = False
        self._queue: deque[FrameBatch | None] = deque()
        self._max_batches = queue_batches
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, batch: FrameBatch) -> None:
        """Add a batch, or mark the client as lagging when its queue is full."""
        if self.is_lagging:
            return
        if len(self._queue) >= self._max_batches:
            self.is_lagging = True
            self._replace_all()
        else:
            self._queue.append(batch)
            self._wake()

    def close(self) -> None:
        """Wake the client to end its stream."""
        self.is_closed = True
        self._replace_all()

    def caught_up(self) -> None:
        """Reset the lag: the client is about to read the table itself."""
        self.is_lagging = False

    async def next(self, timeout_s: float) -> FrameBatch | None:
        """Return the next batch, or `None` when a flag changed; raises TimeoutError."""
        if not self._queue:
            # A future and a timer: `asyncio.wait_for` would make a task per event and client.
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            finally:
                self._waiter = None
        return self._queue.popleft()

    def _replace_all(self) -> None:
        self._queue.clear()
        self._queue.append(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


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
    next_read_at: float = 0.0
    """On the loop's clock."""

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
                await self._pause()
                # Wake-ups of the pause are served by the read that follows.
                self.is_dirty = False
                batch = await self.read(self.run_id, cursor)
                if not batch.events and not batch.ended:
                    continue
                self.cursor = cursor = batch.last
                # Behind a full page there may be events that no wake-up announces.
                self.is_dirty |= batch.is_page
                for client in tuple(self.clients):
                    client.offer(batch)
        except ReadFailed as error:
            self.is_dirty = True
            log.warning(
                "events of %s cannot be read, waiting for a wake-up: %s", self.run_id, error
            )
        finally:
            self.task = None

    async def _pause(self) -> None:
        """Wait until the clients have had time for the batch before."""
        loop = asyncio.get_running_loop()
        if (wait_s := self.next_read_at - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        pause_s = min(LONGEST_PAUSE_S, PAUSE_PER_CLIENT_S * len(self.clients))
        self.next_read_at = loop.time() + pause_s


class Hub:
    """The feeds of this process, by run."""

    def __init__(
        self,
        read: Read,
        *,
        queue_batches: int = QUEUE_BATCHES,
        streams_per_key: int = STREAMS_PER_KEY,
        streams_per_project: int = STREAMS_PER_PROJECT,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self.read = read
        self.is_closed = False
        self._queue_batches = queue_batches
        self._streams_per_key = streams_per_key
        self._streams_per_project = streams_per_project
        self._max_streams = max_streams
        self._num_streams: Counter[str] = Counter()
        """By key or person, and by project."""
        self._feeds: dict[str, Feed] = {}

    def admit(self, caller: Principal) -> None:
        """Refuse a stream too many: raises TooManyStreams, or StreamsBusy for that of others."""
        for holder, name, most in (
            ("key", caller.limited_as, self._streams_per_key),
            ("project", caller.project_id, self._streams_per_project),
        ):
            if self._num_streams[name] >= most:
                raise TooManyStreams(
                    f"This {holder} has {most} streams open: close one.",
                    retry_after_s=RETRY_AFTER_S,
                )
        if self.num_clients >= self._max_streams:
            raise StreamsBusy(
                f"This process has {self._max_streams} streams open, as many as it serves.",
                retry_after_s=RETRY_AFTER_S,
            )

    def join(self, run_id: str, caller: Principal | None = None) -> Subscriber:
        """Subscribe to a run; the client catches up, then calls `client.feed.start`.

        The stream ends when `caller` may no longer read (`leases.py`).
        """
        feed = self._feeds.setdefault(run_id, Feed(run_id=run_id, read=self.read))
        client = Subscriber(feed, queue_batches=self._queue_batches, caller=caller)
        feed.clients.add(client)
        if caller is not None:
            self._num_streams.update((caller.limited_as, caller.project_id))
        if self.is_closed:
            client.close()
        return client

    def leave(self, client: Subscriber) -> None:
        """Unsubscribe a client; the last one ends its feed."""
        feed = client.feed
        feed.clients.discard(client)
        if client.caller is not None:
            self._num_streams.subtract((client.caller.limited_as, client.caller.project_id))
            self._num_streams += Counter()  # forgets the callers without a stream
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
