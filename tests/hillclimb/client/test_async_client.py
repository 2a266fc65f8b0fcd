"""The asynchronous client: every method of `Client`, cancellation, and a stream that reconnects."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import httpx
import pytest

from hillclimb.client.asynchronous import client as async_client
from hillclimb.client.asynchronous.client import AsyncClient
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem, ApiUnreachable
from hillclimb.stack.state.connection import Connection
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.hillclimb.client.conftest import Project
from tests.hillclimb.client.payloads import event_frame

OWN = {"close", "follow", "follow_logs"}


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def methods(owner: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(owner, inspect.isfunction) if name[0] != "_"}


def connection(served: Served) -> Connection:
    return Connection(url=served.url, api_key=served.key)


def test_every_method_of_the_client_has_an_asynchronous_form() -> None:
    assert methods(Client) <= public(AsyncClient)
    client = Client(Connection(url="http://service", api_key="hc_x"))
    parts = {name: type(each) for name, each in vars(client).items() if name[0] != "_"}
    del parts["url"]
    client.close()
    assert len(parts) >= 7
    for part in parts.values():
        assert methods(part) == public(getattr(async_client, f"Async{part.__name__}"))


async def test_requests_of_several_tasks_return_payloads(project: Project, served: Served) -> None:
    async with AsyncClient(connection(served)) as client:
        runs, evals, datasets, capsule = await asyncio.gather(
            client.runs(limit=5),
            client.evals(project.run_id),
            client.datasets.list(),
            client.documentation.index(),
        )
        blocks = [block async for block in client.capsule(project.run_id)]
        with pytest.raises(ApiProblem, match="run_none"):
            await client.run("run_none")
    assert project.run_id in {run.id for run in runs.data}
    assert [each.step for each in evals.data] == [0, 2]
    assert datasets.data == []
    assert capsule.startswith("# Hillclimb")
    assert b"".join(blocks).startswith(b"PK")


async def test_events_are_followed_to_the_end_of_the_run(story: Story, served: Served) -> None:
    run_id = story.running()
    async with AsyncClient(connection(served)) as client:

        async def followed() -> list[int]:
            return [event.seq async for event in client.follow(run_id)]

        task = asyncio.create_task(followed())
        await asyncio.sleep(0.3)
        await asyncio.to_thread(story.push, run_id, story.step(run_id, 1, {"booking": 0.5}))
        await asyncio.to_thread(story.finish, run_id, 1)
        await asyncio.to_thread(_cancel, served, run_id)
        seqs = await asyncio.wait_for(task, 20)
        last = (await client.run(run_id)).last_seq
    assert seqs == list(range(1, last + 1))


def _cancel(served: Served, run_id: str) -> None:
    with Client(connection(served)) as client:
        if client.run(run_id).status not in ("succeeded", "failed"):
            client.cancel(run_id)


async def test_a_stream_that_is_cancelled_ends_at_once(story: Story, served: Served) -> None:
    run_id = story.running()
    async with AsyncClient(connection(served)) as client:

        async def follow() -> None:
            async for _ in client.follow(run_id):
                pass

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(follow(), 1.0)


class Answers(httpx.AsyncBaseTransport):
    """Answers requests with these responses, one each."""

    def __init__(self, *answers: httpx.Response) -> None:
        self._left: Iterator[httpx.Response] = iter(answers)
        self.resumed_after: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.resumed_after.append(request.headers["Last-Event-ID"])
        return next(self._left)


async def test_a_stream_that_breaks_is_continued_after_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_client, "RECONNECT_PAUSE_S", 0.0)
    first = httpx.Response(200, content=event_frame("a", {"text": "x\u2028y"}).encode())
    away = httpx.Response(503, json={"code": "unavailable"})
    end = b"event: end\r\ndata: {}\r\n\r\n"
    last = httpx.Response(200, content=event_frame("b", {}, seq=2).encode() + end)
    answers = Answers(first, away, away, last)
    original = httpx.AsyncClient
    monkeypatch.setattr(
        async_client.httpx,
        "AsyncClient",
        lambda **options: original(**options, transport=answers),
    )
    async with AsyncClient(Connection(url="http://service", api_key="hc_x")) as client:
        events = [event async for event in client.follow("run_1")]
    assert [(event.type, event.seq) for event in events] == [("a", 1), ("b", 2)]
    assert answers.resumed_after == ["0", "1", "1", "1"]


async def test_a_service_that_does_not_respond_is_an_error() -> None:
    async with AsyncClient(Connection(url="http://127.0.0.1:1", api_key="hc_x")) as client:
        with pytest.raises(ApiUnreachable):
            await client.ready()
