"""What a tool call costs through the fleet provider, over the same call in this process.

    .venv-trainer/bin/python benchmarks/envs/overhead.py [CALLS]

The server of Fleet's contract is a process of its own on this machine. Calls go one after another,
in turns: one in this process, one through the provider's open MCP session, and every tenth through
a session of its own, as Fleet's own stack makes each call. HTTP requests are the server's count,
taken after the first call, whose session costs three more. Processor time is this process's own, so
that what else the machine does matters little.

Writes `benchmarks/results/fleet_overhead.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from hillclimb.environment.base import Env
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS
from hillclimb.spec.run import RunSpec
from trainer.envs.fleet.choice import fleet_provider
from trainer.envs.fleet.wire.mcp_session import McpSession
from trainer.envs.fleet.wire.retry import Meter
from trainer.envs.fleet.wire.sizes import Sizes
from trainer.envs.minifleet import MinifleetProvider

COLLECTION = runpy.run_path(str(Path(__file__).with_name("collection.py")))
RESULT = COLLECTION["ROOT"] / "benchmarks/results/fleet_overhead.json"
TOOL, ARGUMENTS = "search_hotels", {"query": "Brno"}
EVERY = 10


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the milliseconds that a call took."""
    begun = time.perf_counter()
    await call()
    return 1000.0 * (time.perf_counter() - begun)


async def measure(url: str, calls: int) -> dict[str, Any]:
    """Make the calls in turns."""
    task = minifleet_tasks(["booking"], "train", 1, seed=0)[0]
    spec = RunSpec.model_validate(
        {
            "name": "overhead",
            "data": {"env_keys": ["booking"]},
            "environment": {"provider": "fleet", "fleet": {"base_url": url}},
        }
    )
    provider = fleet_provider(spec, "benchmark.overhead", {"FLEET_API_KEY": COLLECTION["KEY"]})
    env, local = provider.make(task), MinifleetProvider().make(task)
    begun = time.perf_counter()
    await env.reset()
    reset_ms = 1000.0 * (time.perf_counter() - begun)
    await local.reset()
    assert await env.call(TOOL, ARGUMENTS) == await local.call(TOOL, ARGUMENTS)

    (instance,) = COLLECTION["asked"](url, "GET", "/v1/env/instances")
    address = f"{instance['urls']['root']}mcp"
    headers, tls = {"Authorization": f"Bearer {COLLECTION['KEY']}"}, ssl.create_default_context()

    async def alone() -> None:
        session = McpSession(
            address,
            headers,
            meter=Meter(),
            tls=tls,
            max_bytes=Sizes().max_message_bytes,
            allowed=OWN_MACHINE_HOSTS,
        )
        await session.open()
        await session.call(TOOL, ARGUMENTS)
        await session.close()

    here, there, own = [], [], []
    first = env.measures()["num_mcp_requests"]
    before = counted(url)
    for _ in range(calls):
        here.append(await timed(lambda: local.call(TOOL, ARGUMENTS)))
        there.append(await timed(lambda: env.call(TOOL, ARGUMENTS)))
    sent = counted(url) - before
    for _ in range(calls // EVERY):
        own.append(await timed(alone))
        there.append(await timed(lambda: env.call(TOOL, ARGUMENTS)))
    processor_ms = [
        1000.0 * each / calls for each in (await used(calls, local), await used(calls, env))
    ]
    own_sent = counted(url) - before - sent - calls // EVERY - calls
    await env.close()
    await provider.close()
    return {
        "calls": calls,
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "cores": os.cpu_count(),
        "ms_per_call": {
            "in_this_process": spread(here),
            "through_the_provider": spread(there),
            "through_a_session_of_its_own": spread(own),
        },
        "processor_ms_per_call": {
            "in_this_process": round(processor_ms[0], 3),
            "through_the_provider": round(processor_ms[1], 3),
        },
        "overhead_ms": round(median(there) - median(here), 3),
        "session_of_its_own_over_open_one": round(median(own) / median(there), 2),
        "requests_up_to_the_first_call": int(first),
        "requests_per_call_after_the_first": sent / calls,
        "requests_per_call_with_a_session_of_its_own": own_sent / (calls // EVERY),
        "ms_of_a_reset": round(reset_ms, 1),
    }


async def used(calls: int, env: Env) -> float:
    """Return the seconds of this process's processor time that calls take."""
    begun = time.process_time()
    for _ in range(calls):
        await env.call(TOOL, ARGUMENTS)
    return time.process_time() - begun


def counted(url: str) -> int:
    """MCP's HTTP requests so far, as the server counts them."""
    return int(COLLECTION["asked"](url, "GET", "/admin/stats")["requests"]["mcp_http"])


def spread(values: list[float]) -> dict[str, float]:
    """Median and 90th percentile."""
    tenths = quantiles(values, n=10)
    return {"median": round(median(values), 3), "p90": round(tenths[8], 3)}


def main() -> int:
    calls = int((*sys.argv[1:], "1000")[0])
    with COLLECTION["serving"](10, []) as url:
        found = asyncio.run(measure(url, calls))
    print(json.dumps(found, indent=2))
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if found["requests_per_call_after_the_first"] <= 1.2 else 1


if __name__ == "__main__":
    sys.exit(main())
