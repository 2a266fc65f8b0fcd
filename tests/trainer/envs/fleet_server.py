"""A minifleet Fleet server for tests: in the test's event loop, or in a thread for a module."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from hillclimb.minifleet.server.serving import serving
from hillclimb.minifleet.server.settings import MinifleetSettings

API_KEY = "key-of-tests"
SETTINGS = MinifleetSettings(api_key=API_KEY, tasks_per_env=4)
HEADERS = {"Authorization": f"Bearer {API_KEY}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetServer:
    """A running server: `FLEET_BASE_URL` is `url`, `FLEET_API_KEY` is `API_KEY`."""

    url: str
    http: httpx.AsyncClient
    """Sends the API key."""

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        response = await self.http.request(method, path, **more)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def make(self, env_key: str = "booking", **more: Any) -> Any:
        """Create an instance and return its row."""
        return await self.json("POST", "/v1/env/instances", json={"env_key": env_key, **more})

    async def faults(self, *rules: dict[str, Any], seed: int = 0) -> None:
        """Replace the faults in force; a rule with `for_s` is an outage that ends by itself."""
        body = {"seed": seed, "rules": list(rules)}
        await self.json("PUT", "/admin/faults", json=body)

    async def stats(self) -> Any:
        return await self.json("GET", "/admin/stats")


@asynccontextmanager
async def fleet_server(
    settings: MinifleetSettings = SETTINGS, clock: Callable[[], float] | None = None
) -> AsyncIterator[FleetServer]:
    """Serve in this event loop for as long as the block lasts."""
    more = {"clock": clock} if clock else {}
    async with (
        serving(settings, **more) as url,
        httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {settings.api_key}"},
            timeout=30.0,
            verify=False,  # there is no TLS on loopback, and reading certificates takes 47 ms
        ) as http,
    ):
        yield FleetServer(url=url, http=http)


@contextmanager
def fleet_server_thread(settings: MinifleetSettings = SETTINGS) -> Iterator[str]:
    """Serve in a thread with an event loop of its own and yield the base URL."""
    urls: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(settings) as url:
            urls.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10.0)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10.0)
        loop.close()
