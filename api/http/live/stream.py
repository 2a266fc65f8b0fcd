"""One client's stream: replays the table, then follows the feed, without repeats or gaps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from api.http.live.errors import ReadFailed
from api.http.live.frames import END, PING, RETRY
from api.http.live.hub import Hub, Subscriber
from api.tables.access.identity import Principal

PING_INTERVAL_S = 15.0
STALLED_S = 60.0
"""A client that takes nothing for this long loses its stream: pings alone would wait that long for
a place in its buffer."""

log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """A stream of frames that ends, without an end frame, when its client stops reading."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        """Send the frames; the server closes the connection of a response that is incomplete."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.warning("a client has read nothing for %g s: its stream ends", STALLED_S)
            # Not left to the garbage collector: its place is free for another stream.
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()


async def follow(
    hub: Hub,
    run_id: str,
    after: int,
    *,
    caller: Principal | None = None,
    ping_interval_s: float = PING_INTERVAL_S,
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of the events after `after` until the run's end, then the end frame.

    Stops without an end frame when the service shuts down, when the database does not respond, and
    when the caller may no longer read: the client reconnects with the id of its last event.
    """
    client = hub.join(run_id, caller)
    try:
        yield RETRY
        cursor = after
        while not client.is_closed:
            client.caught_up()
            batch = await hub.read(run_id, cursor)
            if batch.events:
                yield batch.frames
            cursor = batch.last
            if batch.ended:
                yield END
                return
            if batch.is_page:
                continue
            client.feed.start(cursor)
            async for frames, last in _follow_feed(client, cursor, ping_interval_s):
                yield frames
                cursor = last
                if frames is END:
                    return
    except ReadFailed:
        return
    finally:
        hub.leave(client)


async def _follow_feed(
    client: Subscriber, cursor: int, ping_interval_s: float
) -> AsyncIterator[tuple[bytes, int]]:
    """Yield the frames of the feed until the client has to read the table again."""
    while True:
        try:
            batch = await client.next(ping_interval_s)
        except TimeoutError:
            yield PING, cursor
            continue
        if batch is None or batch.first > cursor + 1:
            return
        if batch.last > cursor:
            # The client may have read the first ones from the table.
            yield batch.since(cursor), batch.last
            cursor = batch.last
        if batch.ended:
            yield END, cursor
