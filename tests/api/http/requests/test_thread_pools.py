"""Long requests wait in lanes of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest
from anyio import wait_all_tasks_blocked
from anyio.to_thread import current_default_thread_limiter

from api.datasets.errors import DatasetsBusy
from api.http.requests.thread_pools import BoundedPool


async def test_a_full_lane_takes_no_thread_of_the_others_and_sends_away_who_is_too_many() -> None:
    lane, go = BoundedPool(threads=2, waiting=1), threading.Event()
    working = [asyncio.create_task(lane.run(go.wait)) for _ in range(3)]
    await wait_all_tasks_blocked()
    assert lane.num_waiting == 1
    assert current_default_thread_limiter().borrowed_tokens == 0
    with pytest.raises(DatasetsBusy, match="try again in a minute"):
        await lane.run(go.wait)
    go.set()
    assert await asyncio.gather(*working) == [True, True, True]
    assert await lane.run(lambda: 7) == 7
