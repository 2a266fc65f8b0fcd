"""Requests that are misspelt, or that never end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.http.middleware import RequestEdge
from hillclimb.spec.rules.written_forms import WRITTEN_FORMS
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/v1/runs?foo=1", "query foo: no parameter has this name; there are limit, cursor"),
        ("/v1/runs?stat=failed", "did you mean 'status'?"),
        ("/v1/runs/run_1/metrics?name=x", "did you mean 'names'?"),
        (
            "/v1/runs?status=sucess",
            "unknown status 'sucess'; did you mean 'succeeded'? There are queued, provisioning,",
        ),
        ("/v1/runs?kind=xyz", "unknown kind 'xyz'. There are train, eval, probe,"),
    ],
)
def test_a_misspelt_query_is_refused_with_what_was_meant(
    served: Served, path: str, sentence: str
) -> None:
    with served.client() as client:
        answer = client.get(path)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_a_version_that_is_no_number_has_one_sentence_without_the_names_of_branches(
    served: Served,
) -> None:
    with served.client() as client:
        problem = client.get("/v1/datasets/mine/versions/0").json()
    assert len(problem["errors"]) == 1
    assert "literal" not in problem["detail"].partition(":")[0]


@pytest.mark.parametrize(
    ("change", "pointer", "sentence"),
    [
        ({"schedule": {"total_steps": True}}, "/schedule/total_steps", "it is true or false"),
        ({"optimizer": {"betas": [0.9, True]}}, "/optimizer/betas", "it is true or false"),
        ({"algorithm": {"step_wise": 0}}, "/algorithm/step_wise", "without quotes"),
        ({"name": False}, "/name", "as YAML reads yes, no, on and off too"),
        ({"name": "a/b"}, "/name", "'a/b' cannot be used: write letters, digits, spaces"),
        ({"model": {"source": "builtin:tiny-qwen3-c"}}, "/model/source", "did you mean"),
        (
            {"environment": {"provider": "openenv", "openenv": {"booking": {"url": "http://127.0.0.1:1/ws"}}}},
            "/environment/openenv/booking",
            "url ends in /ws, which is added to it: write http://127.0.0.1:1",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_spec_is_named_in_words(
    served: Served, change: dict[str, Any], pointer: str, sentence: str
) -> None:
    spec = {"name": "a", "data": {"env_keys": ["booking"]}} | change
    with served.client() as client:
        answer = client.post("/v1/runs/plan", json=spec)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert sentence in error["message"]
    assert "pattern" not in error["message"]


def test_every_pattern_of_a_spec_has_words() -> None:
    written_as = {"infra", "accelerators", "image"}
    """Their own validators say what to write."""

    def patterns(node: Any, name: str = "") -> set[str]:
        if isinstance(node, list):
            return {each for part in node for each in patterns(part, name)}
        if not isinstance(node, dict):
            return set()
        own = {node["pattern"]} if "pattern" in node and name not in written_as else set()
        inner = {
            each
            for key, value in node.items()
            for each in patterns(value, name if key in ("anyOf", "items") else key)
        }
        return own | inner

    assert patterns(RunSpec.model_json_schema()) <= set(WRITTEN_FORMS)


def test_a_body_that_never_comes_is_not_waited_for() -> None:
    async def application(_scope: Any, receive: Any, _send: Any) -> None:
        while True:
            await receive()

    async def exchange() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        pieces = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> dict[str, Any]:
            if pieces:
                return pieces.pop()
            return await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: Any) -> None:
            sent.append(message)

        edge = RequestEdge(application, max_upload_bytes=1000, body_idle_s=0.05)
        scope = {"type": "http", "path": "/v1/runs", "headers": []}
        await asyncio.wait_for(edge(scope, receive, send), 5)
        return sent

    start, body = asyncio.run(exchange())
    assert start["status"] == 408
    assert b"Nothing of the body arrived for 0.05 s." in body["body"]


def test_a_stream_may_be_silent_once_the_body_is_complete() -> None:
    async def application(_scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"{}"
        waiting = asyncio.create_task(receive())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        waiting.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def exchange() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        pieces = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if pieces:
                return pieces.pop()
            return await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: Any) -> None:
            sent.append(message)

        edge = RequestEdge(application, max_upload_bytes=1000, body_idle_s=0.05)
        await edge({"type": "http", "path": "/v1/runs", "headers": []}, receive, send)
        return sent

    assert asyncio.run(exchange())[0]["status"] == 200
