"""Our MCP session on mcp 1: what of Hillclimb must work with both versions of the library.

    FLEET_BASE_URL=... FLEET_API_KEY=... .venv-peers/bin/python tests/peers/our_session.py

Imports `trainer.envs.fleet.wire.mcp_session` alone; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from importlib.metadata import version

import httpx

from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS
from trainer.envs.fleet.wire.faults import WireFault
from trainer.envs.fleet.wire.mcp_session import McpSession
from trainer.envs.fleet.wire.retry import Meter

HEADERS = {"Authorization": f"Bearer {os.environ['FLEET_API_KEY']}"}
URL = os.environ["FLEET_BASE_URL"]


async def main() -> None:
    """Open a session, list, call, be refused, lose the instance."""
    async with httpx.AsyncClient(base_url=URL, headers=HEADERS, timeout=30.0) as http:
        made = (await http.post("/v1/env/instances", json={"env_key": "booking"})).json()
        meter = Meter()
        session = McpSession(
            made["urls"]["root"] + "mcp",
            HEADERS,
            meter=meter,
            tls=ssl.create_default_context(),
            max_bytes=1 << 20,
            allowed=OWN_MACHINE_HOSTS,
        )
        await session.open()
        tools = await session.tools()
        good = await session.call("search_hotels", {"query": "Brno"})
        bad = await session.call("no_such_tool", {})
        num_requests = meter.counts["mcp_requests"]
        rule = {"on": ["tool_call"], "error_rate": 1.0, "error_status": 503}
        await http.put("/admin/faults", json={"rules": [rule]})
        refused = await fault(session)
        await http.put("/admin/faults", json={"rules": []})
        again = await session.call("search_hotels", {"query": "Brno"})
        await http.delete(f"/v1/env/instances/{made['instance_id']}")
        lost = await fault(session)
        await session.close()
    found = {
        "mcp": version("mcp"),
        "tools": len(tools),
        "schema": sorted(tools[0]),
        "good": good,
        "bad": bad,
        "same": again == good,
        "num_requests": num_requests,
        "refused": refused,
        "lost": lost,
    }
    sys.stdout.write(json.dumps(found))


async def fault(session: McpSession) -> list[object]:
    """What a call that fails is told as."""
    try:
        await session.call("search_hotels", {"query": "Brno"})
    except WireFault as error:
        return [error.kind, error.status, error.is_transient, error.may_be_done]
    return []


asyncio.run(main())
