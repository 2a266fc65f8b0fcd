"""Fan-out without a database: what a client sees equals the table, whatever the interleaving."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from api.http.live.errors import ReadFailed
from api.http.live.frames import END, PING, RETRY
from api.http.live.hub import FrameBatch, Hub
from api.http.live.stream import follow


class Table:
    """Events of one run, each a frame `<seq>;`."""

    def __init__(self) -> None:
        self.last = 0
        self.ended = False
        self.num_reads = 0
        self.page = 7
        self.is_away = False

    async def read(self, run_id: str, after: int) -> FrameBatch:
        self.num_reads += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise ReadFailed("away")
        after = min(after, self.last)
        last = min(self.last, after + self.page)
        frames = b"".join(b"%d;" % seq for seq in range(after + 1, last + 1))
        ended = self.ended and last == self.last
        return FrameBatch(first=after + 1, last=last, frames=frames, ended=ended)


def seqs(received: list[bytes]) -> list[int]:
    return [int(found) for found in re.findall(rb"(\d+);", b"".join(received))]


async def turns(count: int) -> None:
    """Let every other task go on that many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def collect(hub: Hub, after: int = 0) -> list[bytes]:
    return [frame async for frame in follow(hub, "run", after)]


@pytest.mark.parametrize("seed", range(20))
async def test_every_client_sees_every_event_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    table = Table()
    table.last = 60
    hub = Hub(table.read, queue_batches=2)
    starts = [0, 0, 3, 50]
    clients = [asyncio.create_task(collect(hub, start)) for start in starts]
    for _ in range(60):
        table.last += rng.randint(1, 5)
        if rng.random() < 0.8:
            hub.wake("run")
        for _ in range(rng.randint(0, 6)):
            await asyncio.sleep(0)
    table.ended = True
    hub.wake("run")
    for start, client in zip(starts, clients, strict=True):
        received = await asyncio.wait_for(client, 5)
        assert seqs(received) == list(range(start + 1, table.last + 1))
        assert received[0] is RETRY
        assert received[-1] is END
    assert hub.num_clients == 0


async def test_clients_of_a_run_share_one_read_per_wake_up() -> None:
    table = Table()
    hub = Hub(table.read)
    clients = [asyncio.create_task(collect(hub)) for _ in range(50)]
    await turns(500)
    assert hub.num_clients == 50
    before = table.num_reads
    table.last, table.ended = 3, True
    hub.wake("run")
    for client in clients:
        assert seqs(await asyncio.wait_for(client, 5)) == [1, 2, 3]
    assert table.num_reads - before == 1


async def test_a_client_ahead_of_the_table_gets_the_next_event_and_disturbs_nobody() -> None:
    table = Table()
    table.last = 2
    hub = Hub(table.read)
    ahead = asyncio.create_task(collect(hub, 1000))
    await turns(50)
    behind = asyncio.create_task(collect(hub, 0))
    await turns(50)
    table.last, table.ended = 4, True
    hub.wake("run")
    assert seqs(await asyncio.wait_for(ahead, 5)) == [3, 4]
    assert seqs(await asyncio.wait_for(behind, 5)) == [1, 2, 3, 4]


async def test_closing_ends_streams_without_an_end_frame() -> None:
    hub = Hub(Table().read)
    client = asyncio.create_task(collect(hub))
    await turns(50)
    assert hub.num_clients == 1
    hub.close()
    assert END not in await asyncio.wait_for(client, 5)
    assert END not in await asyncio.wait_for(collect(hub), 5)


async def test_a_silent_run_is_pinged() -> None:
    hub = Hub(Table().read)
    stream = follow(hub, "run", 0, ping_interval_s=0.001)
    assert [await anext(stream), await anext(stream)] == [RETRY, PING]
    await stream.aclose()
    assert hub.num_clients == 0


async def test_a_feed_that_could_not_read_reads_at_the_next_wake_up() -> None:
    table = Table()
    hub = Hub(table.read)
    client = asyncio.create_task(collect(hub))
    await turns(50)
    table.is_away, table.last = True, 2
    hub.wake("run")
    await turns(50)
    table.is_away, table.ended = False, True
    hub.wake_all()
    assert seqs(await asyncio.wait_for(client, 5)) == [1, 2]
