"""`hillclimb import wandb` from a file, and from a server that answers as W&B's does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hillclimb.cli.main import connect
from hillclimb.client.imports.wandb_file import read_offline_run
from tests.fixtures.wandb import EVALUATED, FILE, NAME, pass_at_3
from tests.hillclimb.cli.conftest import Invoke, from_json

KEY = "k" * 40
ROWS = read_offline_run(FILE).rows


class WandbServer(ThreadingHTTPServer):
    """Answers the two queries of one run; `seen` has their variables."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[dict[str, Any]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = base64.b64encode(f"api:{KEY}".encode()).decode()
        status = self.server.status if self.headers["Authorization"] == f"Basic {token}" else 401
        self.server.seen.append(body["variables"])
        answer = json.dumps({"data": {"project": {"run": self._run(body)}}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _run(self, body: dict[str, Any]) -> dict[str, Any] | None:
        variables = body["variables"]
        if (variables["entity"], variables["name"]) != ("thefleet", "abc12345"):
            return None
        if "history(" not in body["query"]:
            return {"displayName": NAME, "historyKeys": {"lastStep": 40}}
        low, high = variables["minStep"], variables["maxStep"]
        chosen = [row for row in ROWS if low <= int(str(row["_step"])) < high]
        return {"history": [json.dumps(row) for row in chosen]}

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    made = WandbServer()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    monkeypatch.setenv("WANDB_BASE_URL", made.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def curve(hc: Invoke, run_id: str) -> list[tuple[int, float]]:
    with connect() as client:
        (series,) = client.metrics(run_id, names="eval/github/pass_at_3").data
    return [(point.step, point.value) for point in series.points]


def test_a_file_becomes_a_run_with_its_curves(hc: Invoke) -> None:
    run = from_json(hc("import", "wandb", str(FILE), "--json"))
    assert (run["name"], run["origin"]["kind"]) == (NAME, "wandb")
    assert curve(hc, run["id"]) == [(step, pass_at_3(step)) for step in EVALUATED]
    assert "metrics alone, no outcomes" in hc("import", "wandb", str(FILE)).stdout


def test_a_run_on_a_server_is_the_same_import(
    hc: Invoke, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hillclimb.client.imports.wandb_api.PAGE_STEPS", 16)
    source = "thefleet/fleet-task-grpo/abc12345"
    run = from_json(hc("import", "wandb", source, "--json"))
    assert run["name"] == NAME
    assert curve(hc, run["id"]) == [(step, pass_at_3(step)) for step in EVALUATED]
    pages = [(each["minStep"], each["maxStep"]) for each in server.seen if "minStep" in each]
    assert pages == [(0, 16), (16, 32), (32, 48)]
    assert {each["project"] for each in server.seen} == {"fleet-task-grpo"}


def test_what_a_server_refuses_is_said(
    hc: Invoke, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = hc("import", "wandb", "thefleet/p/other")
    assert (result.exit_code, "has no run thefleet/p/other" in result.stderr) == (2, True)
    server.status = 502
    assert "responded with 502" in hc("import", "wandb", "thefleet/p/abc12345").stderr
    monkeypatch.setenv("WANDB_API_KEY", "wrong")
    assert "refuses the key" in hc("import", "wandb", "thefleet/p/abc12345").stderr
    monkeypatch.delenv("WANDB_API_KEY")
    assert "WANDB_API_KEY is not set" in hc("import", "wandb", "thefleet/p/abc12345").stderr


def test_the_key_never_travels_in_the_clear(hc: Invoke, server: WandbServer) -> None:
    result = hc("import", "wandb", "a/b/c", "--base-url", "http://wandb.example")
    assert result.exit_code == 2
    assert "use an https address" in result.stderr
    assert server.seen == []
