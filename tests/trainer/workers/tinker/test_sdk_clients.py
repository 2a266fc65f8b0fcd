"""A client that the SDK drops is closed by the SDK's thread, whichever thread collects it."""

from __future__ import annotations

import asyncio

import tinker
from tinker._base_client import AsyncHttpxClientWrapper

from tests.trainer.workers.tinker.server.local import KEY
from trainer.workers.tinker.sdk_clients import close_on_own_loop


async def test_a_client_dropped_on_another_loop_is_closed_on_the_sdks(url: str) -> None:
    close_on_own_loop()
    closed_on: list[asyncio.AbstractEventLoop] = []
    done = asyncio.Event()
    here = asyncio.get_running_loop()

    class Watched(AsyncHttpxClientWrapper):
        async def aclose(self) -> None:
            await super().aclose()
            closed_on.append(asyncio.get_running_loop())
            here.call_soon_threadsafe(done.set)

    service = await asyncio.to_thread(tinker.ServiceClient, base_url=url, api_key=KEY)
    sdk_loop = service.holder.get_loop()

    clients: list[Watched] = []

    async def connect() -> None:
        clients.append(Watched(base_url=url))
        await clients[0].get("/api/v1/healthz")

    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connect(), sdk_loop))
    tasks_before = len(asyncio.all_tasks())
    clients.clear()
    assert len(asyncio.all_tasks()) == tasks_before, "it is closed on the loop of the test"
    async with asyncio.timeout(30.0):
        await done.wait()
    assert closed_on == [sdk_loop]
    service.holder.close()
