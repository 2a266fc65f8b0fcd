"""Following a run that waits for somebody."""

import io
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from rich.console import Console

from hillclimb.cli.runs.view import lines_of_event, render
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.client import Client
from hillclimb.client.run_view import apply, from_run
from hillclimb.stack.state.connection import Connection
from tests.hillclimb.client.payloads import event_frame, run_json, run_payload

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


def test_who_watches_a_waiting_run_in_a_pipe_reads_what_it_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = Service("queued", "event: end\ndata: {}\n\n")
    service.run["queue"] = {"position": 2, "reason": "No runner is connected."}
    with service.client() as client:
        follow_run(client, "run_1", as_json=False)
    assert capsys.readouterr().out.startswith("status queued: No runner is connected.\n")


def test_a_run_that_starts_says_what_it_does_and_for_how_long() -> None:
    began = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    view = apply(from_run(run_payload()), "run.status_changed", {"to": "starting"}, began)
    screen = Console(width=80, record=True, file=io.StringIO())
    screen.print(render(view, began + timedelta(seconds=83)))
    text = screen.export_text()
    assert "1:23  starting: the trainer imports its libraries, loads the model" in text
    running = apply(view, "run.status_changed", {"to": "running"}, began)
    screen.print(render(running, began))
    assert "0:00" not in screen.export_text()


def test_the_phases_of_a_start_have_their_times_in_80_columns() -> None:
    began = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    view = apply(from_run(run_payload()), "run.status_changed", {"to": "starting"}, began)
    lines = []
    for second, phase, took in (
        (0, "imports", None), (6, "imports", 6.1), (6, "ray", None), (9, "ray", 3.2),
        (9, "weights", None), (9, "engines", None), (9, "environments", None),
        (11, "environments", 2.0),
    ):  # fmt: skip
        data = {"phase": phase, "seconds": took}
        view = apply(view, "trainer.starting", data, began + timedelta(seconds=second))
        lines += lines_of_event(view, "trainer.starting")
    assert lines[:2] == ["starting: imports its libraries", "starting: starts Ray"]
    screen = Console(width=80, record=True, file=io.StringIO())
    screen.print(render(view, began + timedelta(seconds=13)))
    text = screen.export_text()
    assert "0:13  starting: loads the weights, starts the engines\n" in text
    times = "imports 6.1 s, ray 3.2 s, weights 4.0 s, engines 4.0 s, environments 2.0 s"
    assert times in text
    view = apply(view, "trainer.starting", {"phase": "weights", "seconds": 5.0}, began)
    view = apply(view, "trainer.starting", {"phase": "engines", "seconds": 5.5}, began)
    view = apply(view, "trainer.started", {"total_steps": 4})
    (line,) = lines_of_event(view, "trainer.started")
    assert line.startswith("started: imports 6.1 s, ray 3.2 s, weights 5.0 s, engines 5.5 s")


def test_colours_of_a_log_are_left_out_of_a_status() -> None:
    reason = {
        "code": "trainer_crashed",
        "message": "last lines:\n\x1b[36m(EngineWorker)\x1b[0m gone",
    }
    view = apply(from_run(run_payload()), "run.status_changed", {"to": "failed", "reason": reason})
    assert lines_of_event(view, "run.status_changed") == [
        "status failed: last lines:\n(EngineWorker) gone"
    ]


def test_of_many_evaluations_the_first_and_the_newest_are_shown() -> None:
    view = from_run(run_payload(status="running"))
    for step in range(0, 60, 6):
        rates = {"booking": {"pass_at_1": step / 100}}
        data = {"step": step, "decoding": "sampled", "envs": rates, "all": rates["booking"]}
        view = apply(view, "eval.completed", data)
    screen = Console(width=80, record=True, file=io.StringIO())
    screen.print(render(view))
    text = screen.export_text()
    assert "sampled @0" in text
    assert "sampled @54" in text
    assert "sampled @48" not in text
