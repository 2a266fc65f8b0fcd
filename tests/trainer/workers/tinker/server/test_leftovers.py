"""Nothing of the SDK outlives a file of tests, however slowly its thread runs."""

from __future__ import annotations

import asyncio
import time

import tinker

from tests.trainer.workers.tinker.server.leftovers import collect_what_the_sdk_leaves, holders
from tests.trainer.workers.tinker.server.local import KEY


def keep_busy(loop: asyncio.AbstractEventLoop, times: int) -> None:
    """Let the loop do nothing else for most of the next `times` twentieths of a second."""
    loop.call_soon_threadsafe(time.sleep, 0.05)
    if times:
        loop.call_soon_threadsafe(keep_busy, loop, times - 1)


def test_no_client_is_left_though_the_sdks_thread_is_busy(url: str) -> None:
    # Tests of other files may run between this file's, with clients of their own.
    before = {id(each) for each in holders()}
    client = tinker.ServiceClient(base_url=url, api_key=KEY)
    client.get_server_capabilities()
    keep_busy(client.holder.get_loop(), times=20)
    del client
    collect_what_the_sdk_leaves()
    assert [each for each in holders() if id(each) not in before] == []
