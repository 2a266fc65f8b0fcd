"""The ladder `wandb`: its refusals. No W&B server can be installed here, so nothing passes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.redactor import Redactor
from trainer.jobs.acceptance.wandb import WandbLadder

KEY = "k" * 40


class _Wandb(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        status, body = self.server.answer  # type: ignore[attr-defined]
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Wandb)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def climbed(url: str, key: str = KEY) -> tuple[CheckObservation, ...]:
    environ = {"WANDB_BASE_URL": url, "WANDB_API_KEY": key}
    ladder = WandbLadder(environ, project="accept", entity=None)
    return await climb(ladder, Redactor((key,)))


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (401, {}, "set WANDB_API_KEY to a key of this server"),
        (200, {"data": {"viewer": None}}, "set WANDB_API_KEY to a key of this server"),
        (502, {"errors": ["bad gateway"]}, "set WANDB_API_KEY"),
    ],
)
async def test_a_refused_key_is_the_first_thing_that_is_said(
    server: ThreadingHTTPServer, status: int, body: object, remedy: str
) -> None:
    server.answer = (status, body)  # type: ignore[attr-defined]
    (only,) = await climbed(f"http://127.0.0.1:{server.server_port}")
    assert (only.name, only.passed) == ("key", False)
    assert remedy in only.remedy
    assert KEY not in only.seen + only.remedy


async def test_without_a_key_or_over_plain_http_nothing_is_sent() -> None:
    (only,) = await climbed("https://wandb.example", key="")
    assert only.remedy == "set WANDB_API_KEY in this environment"
    (only,) = await climbed("http://wandb.example")
    assert "in the clear" in only.seen


async def test_a_server_that_is_away_is_named() -> None:
    (only,) = await climbed("http://127.0.0.1:9")
    assert "check that this machine reaches W&B" in only.remedy
