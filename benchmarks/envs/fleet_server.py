"""What minifleet's Fleet server costs: memory per idle instance, processor time per request.

    .venv-trainer/bin/python benchmarks/envs/fleet_server.py [INSTANCES] [CALLS]

Prints one JSON object. Processor time and memory are the server process's own, so that what else
the machine does matters little; `calls_per_s` is the wall clock's, with this client beside it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import psutil

AT_ONCE = 16
KEY = "benchmark"
CALL = {"name": "search_hotels", "arguments": {"query": "Brno"}}


async def measure(url: str, server: psutil.Process, instances: int, calls: int) -> dict[str, Any]:
    """Make the instances, call a tool of them in turn, end them."""
    rows: list[Any] = []
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60.0) as http:

        async def make(_: int) -> None:
            body = {"env_key": "booking", "run_id": "benchmark"}
            made = await http.post("/v1/env/instances", json=body)
            rows.append(made.raise_for_status().json())

        async def call(number: int) -> None:
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": CALL}
            root = rows[number % len(rows)]["urls"]["root"]
            (await http.post(f"{root}mcp", json=body)).raise_for_status()

        await many(make, range(2 * AT_ONCE))
        memory, processor = server.memory_info().rss, cpu(server)
        await many(make, range(instances))
        made_s, held = cpu(server) - processor, server.memory_info().rss - memory
        processor, begun = cpu(server), time.perf_counter()
        await many(call, range(calls))
        called_s, wall_s = cpu(server) - processor, time.perf_counter() - begun
        ended = await http.delete("/v1/env/instances/batch", params={"run_id": "benchmark"})
    return {
        "instances": len(ended.raise_for_status().json()),
        "kib_per_instance": round(held / instances / 1024, 1),
        "cpu_ms_per_create": round(1000 * made_s / instances, 2),
        "calls": calls,
        "cpu_ms_per_call": round(1000 * called_s / calls, 2),
        "calls_per_s": round(calls / wall_s),
    }


def cpu(process: psutil.Process) -> float:
    """Return the seconds of processor time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def many(work: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    """Do the work for every number, a few at once."""
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def main() -> None:
    instances, calls = (int(word) for word in (*sys.argv[1:], "500", "5000")[:2])
    command = [sys.executable, "-m", "hillclimb.minifleet.server", "serve", "--json"]
    options = ["--api-key", KEY, "--instance-limit", str(instances + 2 * AT_ONCE)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["base_url"]
        found = asyncio.run(measure(url, psutil.Process(server.pid), instances, calls))
        server.terminate()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
