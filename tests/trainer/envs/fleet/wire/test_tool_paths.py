"""Tools of an instance that serves them at either of two paths, or some at each."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import EnvUnavailable
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.server.routes.tools import ToolCalls
from hillclimb.minifleet.server.state.instances import Instance, InstanceTable
from tests.trainer.envs.fleet.scene import TASK, go_on, on_server, play
from trainer.envs.fleet.wire import tool_paths

OWN, AGGREGATOR = "mcp", "api/v1/mcp"
ALL = [tool.spec.name for tool in APPS["booking"].tools]
SCREEN = {"name": "computer", "inputSchema": {"type": "object"}}
Answer = Callable[[], Awaitable[Response]]


@dataclass
class Paths:
    """What the two paths answer in place of the server, and what they were asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    tools: dict[str, Collection[str]] = field(default_factory=dict)
    """The tools that a path lists; `computer` is one that the server does not know."""
    seen: list[tuple[str, str]] = field(default_factory=list)

    def asked(self, path: str, method: str) -> int:
        return self.seen.count((path, method))

    def listing(self, path: str, response: Response) -> Response:
        names, body = self.tools[path], json.loads(bytes(response.body))
        tools = [tool for tool in body["result"]["tools"] if tool["name"] in names]
        body["result"]["tools"] = tools + ([SCREEN] if "computer" in names else [])
        return JSONResponse(body)


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Paths:
    served, post = Paths(), ToolCalls.post

    async def answer(part: ToolCalls, request: Request) -> Response:
        path = AGGREGATOR if request.url.path.endswith(AGGREGATOR) else OWN
        method = str((await request.json())["method"])
        served.seen.append((path, method))
        if path in served.answers:
            return await served.answers[path]()
        response = await post(part, request)
        is_listing = method == "tools/list" and path in served.tools
        return served.listing(path, response) if is_listing else response

    monkeypatch.setattr(ToolCalls, "post", answer)
    return served


def says(body: Any, status: int) -> Answer:
    async def answer() -> Response:
        return JSONResponse(body, status)

    return answer


async def hangs() -> Response:
    await asyncio.sleep(60.0)
    raise AssertionError


@pytest.mark.parametrize(
    ("silent", "serving"), [(OWN, AGGREGATOR), (AGGREGATOR, OWN)], ids=["aggregator", "own"]
)
@pytest.mark.parametrize("status", [404, 405, 410])
async def test_one_path_that_is_not_there_is_no_fault(
    silent: str, serving: str, status: int, paths: Paths
) -> None:
    paths.answers[silent] = says({"detail": "not found"}, status)
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        tools, results = await play(env)
        assert [tool.name for tool in tools] == ALL
        assert (await env.score()).score == 1.0
        assert paths.asked(serving, "tools/call") == len(results)
        assert paths.asked(silent, "initialize") == 1, "a path that is not there is not retried"
        assert env.measures()["num_retries"] == 0
        await env.close()


@pytest.mark.parametrize(
    "answer",
    [says({"detail": "no upstream"}, 503), hangs],
    ids=["unavailable", "no answer"],
)
async def test_a_path_that_fails_is_waited_for_and_then_passed_over(
    answer: Answer,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tool_paths, "PATIENCE_S", 0.5)
    paths.answers[AGGREGATOR] = answer
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        with caplog.at_level(logging.WARNING), within(60.0):
            await play(env)
        assert (await env.score()).score == 1.0
        await env.close()
    (warning,) = [each for each in caplog.messages if "lists no tools" in each]
    assert "/api/v1/mcp lists no tools: " in warning


async def test_a_path_that_comes_up_late_adds_its_tools(paths: Paths) -> None:
    later = [says({}, 503)] * 2

    async def answer() -> Response:
        refusal = later.pop()
        if not later:
            del paths.answers[AGGREGATOR]
        return await refusal()

    paths.answers[AGGREGATOR] = answer
    paths.tools = {OWN: ALL[:1], AGGREGATOR: ALL[1:]}
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        assert [tool.name for tool in await env.reset()] == ALL
        await env.close()


async def test_the_tools_are_those_of_both_paths_and_a_call_goes_to_its_own(paths: Paths) -> None:
    first, second = ALL[::2], ALL[1::2]
    paths.tools = {OWN: first, AGGREGATOR: [*second, first[0], "computer"]}
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        assert [tool.name for tool in await env.reset()] == [*first, *second]
        for name, owner, calls in (
            (first[0], OWN, 1),
            (second[0], AGGREGATOR, 1),
            ("no_such_tool", OWN, 2),
            ("computer", OWN, 3),
        ):
            await env.call(name, {})
            assert paths.asked(owner, "tools/call") == calls
        await go_on(env)
        assert (await env.score()).score == 1.0
        await env.close()


async def test_an_aggregator_with_a_screen_alone_is_not_taken_for_the_tools(paths: Paths) -> None:
    paths.tools = {AGGREGATOR: ["computer"]}
    async with on_server() as (server, provider):
        # The environment's own server comes up after the aggregator.
        await server.faults({"on": ["initialize"], "error_rate": 1.0, "for_s": 0.5})
        env = provider.make(TASK)
        with within(60.0):
            assert [tool.name for tool in await env.reset()] == ALL
        await env.close()
        paths.tools[OWN] = ["computer"]
        with pytest.raises(EnvUnavailable, match="no_tools: the only tool is for a screen"):
            await env.reset()
        await env.close()


async def test_an_instance_without_tools_at_either_path_does_not_start(paths: Paths) -> None:
    paths.answers = {OWN: says({}, 404), AGGREGATOR: says({"detail": "broken"}, 400)}
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable, match=r"bad_request \(400\): broken") as refused:
            await env.reset()
        assert not refused.value.is_permanent, "another instance may have them"
        await env.close()


async def test_a_session_that_is_lost_is_opened_again_at_its_own_path(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.tools = {OWN: ALL[:1], AGGREGATOR: ALL[1:]}
    instances: list[Instance] = []
    start = InstanceTable.start

    def spy(table: InstanceTable, instance: Instance, env: Any) -> None:
        instances.append(instance)
        start(table, instance, env)

    monkeypatch.setattr(InstanceTable, "start", spy)
    async with on_server(mcp_sessions=True) as (_, provider):
        env = provider.make(TASK)
        await env.reset()
        instances[0].mcp_sessions.clear()
        await go_on(env)
        assert (await env.score()).score == 1.0
        # Only sessions in which a call was made were found to be lost.
        used = {path for path, method in paths.seen if method == "tools/call"}
        assert env.measures()["num_reconnects"] == len(used) > 0
        assert all(
            paths.asked(path, "initialize") == 1 + (path in used) for path in tool_paths.PATHS
        )
        await env.close()
