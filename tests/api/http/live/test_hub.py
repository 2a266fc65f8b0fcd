"""Fan-out without a database: what a client sees equals the table, whatever the interleaving."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from typing import Any

import pytest

from api.http.live.errors import ReadFailed
from api.http.live.frames import END, PING, RETRY
from api.http.live.hub import PAUSE_PER_CLIENT_S, FrameBatch, Hub
from api.http.live.stream import follow
from api.tables.access.errors import StreamsBusy, TooManyStreams
from api.tables.access.identity import Principal


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
        events = tuple(b"%d;" % seq for seq in range(after + 1, last + 1))
        ended = self.ended and last == self.last
        is_page = len(events) == self.page
        return FrameBatch(first=after + 1, events=events, is_page=is_page, ended=ended)


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


async def test_clients_of_a_busy_run_read_its_table_once_each() -> None:
    """One that read until nothing more came would read for ever, and so would all others."""
    table = Table()
    table.page = 100_000
    readers: Counter[asyncio.Task[Any] | None] = Counter()

    async def busy_read(run_id: str, after: int) -> FrameBatch:
        readers[asyncio.current_task()] += 1
        table.last += not table.ended
        batch = await table.read(run_id, after)
        table.last += not table.ended
        hub.wake(run_id)
        return batch

    hub = Hub(busy_read)
    clients = [asyncio.create_task(collect(hub)) for _ in range(10)]
    await turns(300)
    table.ended = True
    hub.wake("run")
    for client in clients:
        assert seqs(await asyncio.wait_for(client, 5)) == list(range(1, table.last + 1))
    assert [readers[client] for client in clients] == [1] * 10


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


async def test_a_batch_makes_no_task_per_client() -> None:
    """On Python 3.11 `asyncio.wait_for` makes one per event and client, 40 % of the CPU."""
    table = Table()
    hub = Hub(table.read)
    clients = [asyncio.create_task(collect(hub)) for _ in range(20)]
    await turns(200)
    loop, made = asyncio.get_running_loop(), [0]

    def make_task(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        made[0] += 1
        return asyncio.Task(coro, loop=loop, **more)

    loop.set_task_factory(make_task)
    for _ in range(5):
        table.last += 1
        hub.wake("run")
        await turns(50)
    loop.set_task_factory(None)
    table.ended = True
    hub.wake("run")
    for client in clients:
        assert seqs(await asyncio.wait_for(client, 5)) == [1, 2, 3, 4, 5]
    assert made[0] <= 5  # the feed's own


async def test_events_of_a_busy_run_come_in_few_batches_to_many_clients() -> None:
    table = Table()
    hub = Hub(table.read)
    clients = [asyncio.create_task(collect(hub)) for _ in range(500)]
    await turns(600)
    before, began = table.num_reads, asyncio.get_running_loop().time()
    for _ in range(100):
        table.last += 1
        hub.wake("run")
        await asyncio.sleep(0.001)
    num_reads = table.num_reads - before
    elapsed = asyncio.get_running_loop().time() - began
    table.ended = True
    hub.wake("run")
    for client in clients:
        assert seqs(await asyncio.wait_for(client, 30)) == list(range(1, 101))
    pause_s = 500 * PAUSE_PER_CLIENT_S
    assert 1 <= num_reads <= elapsed / pause_s + 2


async def test_one_client_of_a_quiet_run_waits_for_no_pause() -> None:
    table = Table()
    hub = Hub(table.read)
    stream = follow(hub, "run", 0)
    assert await anext(stream) is RETRY
    awaited = asyncio.create_task(anext(stream))
    await turns(20)
    table.last = 1
    hub.wake("run")
    await turns(20)
    assert awaited.done()
    await stream.aclose()


async def test_a_key_has_so_many_streams_and_gets_a_place_back() -> None:
    hub = Hub(Table().read, streams_per_key=2)
    mine, other = caller("key_1"), caller("key_2")
    streams = [follow(hub, "run", 0, caller=mine) for _ in range(2)]
    for stream in streams:
        hub.admit(mine)
        await anext(stream)
    with pytest.raises(TooManyStreams, match="2 streams"):
        hub.admit(mine)
    hub.admit(other)
    await streams[0].aclose()
    hub.admit(mine)
    await streams[1].aclose()
    assert hub.num_clients == 0


async def test_a_project_and_the_process_have_so_many_streams() -> None:
    hub = Hub(Table().read, streams_per_project=2, max_streams=3)
    of_one = [caller("key_1"), caller("key_2")]
    streams = [follow(hub, "run", 0, caller=each) for each in of_one]
    for stream in streams:
        await anext(stream)
    with pytest.raises(TooManyStreams, match="This project has 2 streams"):
        hub.admit(caller("key_3"))
    hub.admit(caller("key_4", "prj_other"))
    streams.append(follow(hub, "run", 0, caller=caller("key_4", "prj_other")))
    await anext(streams[-1])
    with pytest.raises(StreamsBusy, match="This process has 3 streams") as refused:
        hub.admit(caller("key_5", "prj_third"))
    assert refused.value.retry_after_s > 0
    for stream in streams:
        await stream.aclose()
    hub.admit(caller("key_5", "prj_third"))
    hub.admit(caller("key_3"))


def caller(key_id: str, project_id: str = "prj") -> Principal:
    return Principal(project_id=project_id, key_id=key_id, key_name="k", scopes=frozenset())
