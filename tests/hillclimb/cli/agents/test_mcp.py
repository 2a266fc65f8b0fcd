"""`hillclimb mcp`: what tools return, refusals as JSON, and the official client of MCP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments.scripted_agent import Refused
from hillclimb.blobs.disk import DiskStore
from hillclimb.cli.tools.data_plane import find_python
from tests.api.admission.experiments.conftest import BASE, submit, train
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.agents.conftest import Open
from tests.hillclimb.cli.conftest import Invoke, from_json
from tests.hillclimb.client.conftest import _training

OFFICIAL = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(
        command=sys.argv[1], args=["-m", "hillclimb.cli", "mcp"], env=json.loads(sys.argv[2])
    )
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        hello = await session.initialize()
        await session.send_ping()
        tools = (await session.list_tools()).tools
        planned = await session.call_tool("plan", {"spec": json.loads(sys.argv[3])})
        refused = await session.call_tool("status", {"run_id": "run_none"})
        print(json.dumps({
            "server": hello.model_dump(mode="json", by_alias=True)["serverInfo"]["name"],
            "tools": [tool.name for tool in tools],
            "plan": json.loads(planned.content[0].text),
            "refusal": json.loads(refused.content[0].text),
            "flags": [planned.model_dump(by_alias=True)["isError"],
                      refused.model_dump(by_alias=True)["isError"]],
        }))

asyncio.run(main())
"""


def test_the_official_client_lists_and_calls_the_tools(
    served: Served, agent_key: Callable[..., dict[str, Any]], tmp_path: Path, hc: Invoke
) -> None:
    script = tmp_path / "official.py"
    script.write_text(OFFICIAL)
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": agent_key()["key"]}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    words = [sys.executable, json.dumps(environment), json.dumps(BASE)]
    done = subprocess.run(
        [str(find_python()), str(script), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    listed = [each["name"] for each in from_json(hc("mcp", "--tools", "--json"))]
    assert found["server"] == "hillclimb"
    assert found["tools"] == listed
    assert found["flags"] == [False, True]
    assert found["plan"]["queue"]["position"] == 1
    assert found["refusal"]["code"] == "run_not_found"


def test_refusals_name_code_pointer_and_sentence(open_session: Open) -> None:
    session = open_session(1)
    with pytest.raises(Refused) as refusal:
        session.call("plan", spec=BASE | {"optimizer": {"lr": -1}})
    body = refusal.value.body
    assert body["code"] == "invalid_spec"
    assert [each["pointer"] for each in body["errors"]] == ["/optimizer/lr"]
    assert body["errors"][0]["message"]
    with pytest.raises(Refused) as refusal:
        session.call("watch", run_id="run_1", wait_s=1e6, forever=True)
    body = refusal.value.body
    assert body["code"] == "invalid_arguments"
    assert {each["pointer"] for each in body["errors"]} == {"/wait_s", "/forever"}


def test_results_are_compact_and_without_tokens(
    open_session: Open, story: Story, blobs: DiskStore
) -> None:
    session = open_session(0)
    run_id = _training(story, blobs)
    listed = session.call("trajectories", run_id=run_id, split="eval", failed=True, limit=5)
    assert 0 < len(listed["trajectories"]) <= 5
    assert all(each["passed"] is False for each in listed["trajectories"])
    rollout_id = listed["trajectories"][0]["rollout_id"]
    text = session.call("trajectory", run_id=run_id, rollout_id=rollout_id)
    assert text["turns"]
    assert "token_ids" not in json.dumps(text)
    shorter = session.call("trajectory", run_id=run_id, rollout_id=rollout_id, max_chars=200)
    assert len(json.dumps(shorter["turns"])) < 2000
    assert session.call("verdicts", run_id=run_id)["decodings"]["sampled"]["verdict"]
    assert session.call("signal", run_id=run_id)["all"]["reading"]
    assert session.call("metrics", run_id=run_id)["metrics"][0]["points"]
    assert session.call("patterns", run_id=run_id)["before_step"] == 0
    assert session.call("status", run_id=run_id)["status"] == "running"
    assert session.call("runs", status="running")["runs"][0]["id"] == run_id
    name = next(iter(session.call("presets")["presets"]))
    assert session.call("presets", name=name)["spec"]["name"]


def test_a_watch_ends_with_its_run_and_not_before_its_time(
    open_session: Open, story: Story
) -> None:
    session = open_session(0)
    run_id = story.running(spec())
    started = time.monotonic()
    seen = session.call("watch", run_id=run_id, wait_s=1.5)
    assert time.monotonic() - started > 1.4
    assert seen["has_ended"] is False
    ended = submit(story, "short")
    train(story, ended, 0.3, 0.5)
    started = time.monotonic()
    seen = session.call("watch", run_id=ended, wait_s=60)
    assert time.monotonic() - started < 10
    assert seen["has_ended"] is True
    assert [each["type"] for each in seen["events"]].count("eval.completed") == 3
    assert len(json.dumps(seen)) < 8000
    again = session.call("watch", run_id=ended, wait_s=0, after=seen["next_after"])
    assert again["events"] == []


def test_a_server_that_loses_its_client_ends_while_a_call_waits(
    open_session: Open, story: Story, served: Served, agent_key: Callable[..., dict[str, Any]]
) -> None:
    run_id = story.running(spec())
    key = agent_key()["key"]
    environment = os.environ | {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": key}
    call = {"name": "watch", "arguments": {"run_id": run_id, "wait_s": 300}}
    lines = [
        "this is no JSON",
        "[1]",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "no/such"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "x"}}),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.cli", "mcp"],
        input="\n".join(lines) + "\n",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    codes = {each["id"]: each["error"]["code"] for each in answers[2:] if "error" in each}
    assert done.returncode == 0, done.stderr
    assert sorted(each["error"]["code"] for each in answers if each["id"] is None) == [
        -32700,
        -32600,
    ]
    assert codes == {1: -32601, 2: -32602}
    assert answers[-1]["id"] == 3


def test_keys_are_listed_changed_and_revoked(
    hc: Invoke, agent_key: Callable[..., dict[str, Any]]
) -> None:
    made = agent_key(2, "--hours", "1.5")
    shown = hc("agent-key", "list").stdout
    assert made["id"] in shown
    assert "0/2" in shown
    assert made["key"] not in shown
    changed = from_json(hc("agent-key", "set", made["id"], "--runs", "5", "--json"))
    assert (changed["grant"]["num_runs"], changed["grant"]["extra_hours"]) == (5, 1.5)
    assert "revoked" in hc("agent-key", "revoke", made["id"]).stdout
    assert hc("agent-key", "show").exit_code == 7
    assert hc("agent-key", "revoke", "key_none").exit_code == 7
