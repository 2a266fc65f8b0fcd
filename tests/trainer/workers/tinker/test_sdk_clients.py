"""The SDK's thread closes what the SDK drops, whichever thread collects it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import pytest
from tinker._client import AsyncTinker
from tinker.lib.internal_client_holder import _internal_client_holder_thread_singleton
from tinker.types import ClientConfigResponse

from tests.trainer.workers.tinker.server.local import KEY
from trainer.workers.tinker.sdk_clients import close_on_own_loop

AS_FOR_ITS_CONFIGURATION = ClientConfigResponse(use_pyqwest_transport=False)
"""As the SDK asks for it: with a transport whose sockets belong to its event loop."""


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    close_on_own_loop()
    return _internal_client_holder_thread_singleton.get_loop()


async def _connected(url: str) -> tuple[AsyncTinker, int]:
    """A client in a cycle of references, as every one that has made a call, and its socket."""
    client = AsyncTinker(base_url=url, api_key=KEY, _client_config=AS_FOR_ITS_CONFIGURATION)
    assert client.service._client is client
    response = await client._client.get("/api/v1/healthz")
    return client, response.extensions["network_stream"].get_extra_info("socket").fileno()


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def test_a_collection_elsewhere_closes_no_socket(url: str, loop: asyncio.AbstractEventLoop) -> None:
    client, descriptor = asyncio.run_coroutine_threadsafe(_connected(url), loop).result(60.0)
    socket = _inode(descriptor)
    assert socket is not None
    busy, go_on = threading.Event(), threading.Event()
    loop.call_soon_threadsafe(lambda: (busy.set(), go_on.wait(60.0)))
    assert busy.wait(60.0)
    del client
    gc.collect()
    # Its number is not free for a new connection until the loop has let go of the old one.
    assert _inode(descriptor) == socket
    go_on.set()
    deadline = time.monotonic() + 60.0
    while _inode(descriptor) == socket:
        assert time.monotonic() < deadline, "the SDK's loop does not close it"
        time.sleep(0.01)
