"""Following a run that waits for somebody."""

import json

import httpx
import pytest

from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.client import Client
from hillclimb.stack.control import Connection
from tests.hillclimb.client.payloads import event_frame, run_json

MESSAGE = "no space left in [runs/run_1]"


def frame(seq: int, before: str, after: str) -> str:
    data = {"from": before, "to": after, "reason": {"message": MESSAGE}}
    return event_frame("run.status_changed", data, seq=seq)


class Service:
    """One run whose stream stays open after what happened so far."""

    def __init__(self, status: str, *frames: str) -> None:
        reason = {
            "code": "storage_full", "category": "infra", "retryable": False, "message": MESSAGE,
        }  # fmt: skip
        self.run = run_json(status=status, attempt=1, end_reason=reason)
        self.frames = frames

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/stream"):
            return httpx.Response(200, content="".join(self.frames).encode())
        return httpx.Response(200, json=self.run)

    def client(self) -> Client:
        connection = Connection(url="http://service", api_key="hc_x")
        return Client(connection, httpx.MockTransport(self))


def test_a_paused_run_ends_the_wait_and_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = Service("paused", frame(1, "running", "pausing"), frame(2, "pausing", "paused"))
    with service.client() as client:
        assert follow_run(client, "run_1", as_json=False) == Exit.RUN_PAUSED
    printed = capsys.readouterr().out
    assert f"run_1 paused: {MESSAGE}" in printed, "brackets are text, not markup"
    assert "hillclimb resume run_1 --watch" in printed


def test_a_pause_that_is_over_does_not_end_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    past = (frame(1, "pausing", "paused"), frame(2, "paused", "running"))
    service = Service("succeeded", *past, "event: end\ndata: {}\n\n")
    with service.client() as client:
        assert follow_run(client, "run_1", as_json=True) == Exit.OK
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
