"""Readers that never read, and streams beyond a key's limit, over real sockets."""

import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

import api.http.live.stream as stream_module
from api.http.live.hub import Hub
from api.runs import store
from api.runs.journal import Draft, append
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


def hub_of(served: Served) -> Hub:
    hub: Hub = served.server.config.app.state.hub  # type: ignore[union-attr]
    return hub


def write(story: Story, run_id: str, num_events: int, size: int) -> None:
    draft = Draft(type="run.warning", data={"code": "x", "message": "m" * size})
    with story.database.transaction() as session:
        append(session, store.lock_run(session, run_id), [draft] * num_events)


def open_stream(served: Served, run_id: str) -> socket.socket:
    """A client that sends a request and reads nothing."""
    place = urlsplit(served.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((place.hostname, place.port))
    path = f"/v1/runs/{run_id}/events/stream"
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.key}\r\n\r\n".encode()
    )
    return client


def wait_for(served: Served, num_clients: int) -> None:
    deadline = time.monotonic() + 20
    while hub_of(served).num_clients != num_clients:
        assert time.monotonic() < deadline, hub_of(served).num_clients
        time.sleep(0.01)


def test_a_client_that_never_reads_loses_its_stream(
    story: Story, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "STALLED_S", 0.3)
    run_id = story.running()
    with open_stream(served, run_id):
        wait_for(served, 1)
        write(story, run_id, 400, 30_000)
        wait_for(served, 0)


def test_a_stream_too_many_is_refused_with_a_time_to_wait(
    story: Story, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_of(served), "_streams_per_key", 1)
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with served.client() as client, open_stream(served, run_id):
        wait_for(served, 1)
        answer: httpx.Response = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
    assert answer.headers["retry-after"] == "5"


def test_a_full_process_sends_a_client_to_another_one(
    story: Story, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_of(served), "_max_streams", 1)
    run_id = story.running()
    path = f"/v1/runs/{run_id}/events/stream"
    with served.client() as client, open_stream(served, run_id):
        wait_for(served, 1)
        answer: httpx.Response = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "streams_busy")
    assert answer.headers["retry-after"] == "5"
