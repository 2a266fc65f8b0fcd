"""The ladder `wandb`: its refusals. No W&B server can be installed here, so nothing passes it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from wandb import teardown

from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.redactor import Redactor
from trainer.jobs.acceptance import wandb
from trainer.jobs.acceptance.wandb import WandbLadder

KEY = "k" * 40


class _Wandb(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        answers = self.server.answers  # type: ignore[attr-defined]
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
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
        (400, {"errors": ["no such key"]}, "set WANDB_API_KEY"),
        (502, {"errors": ["bad gateway"]}, "the server is in trouble"),
        (404, [], "correct WANDB_BASE_URL"),
        (404, {"detail": "Not Found"}, "correct WANDB_BASE_URL"),
    ],
)
async def test_a_refused_key_is_the_first_thing_that_is_said(
    server: ThreadingHTTPServer, status: int, body: object, remedy: str
) -> None:
    server.answers = [(status, body)]  # type: ignore[attr-defined]
    (only,) = await climbed(f"http://127.0.0.1:{server.server_port}")
    assert (only.name, only.passed) == ("key", False)
    assert remedy in only.remedy
    assert KEY not in only.seen + only.remedy


@pytest.mark.parametrize(
    ("url", "seen", "remedy"),
    [
        (
            "https://nosuch.invalid",
            "https://nosuch.invalid cannot be reached: no such host is known",
            "and the address in WANDB_BASE_URL",
        ),
        (
            "http://127.0.0.1:9",
            "http://127.0.0.1:9 cannot be reached: nothing listens there",
            "that this machine reaches W&B (proxy, firewall)",
        ),
        ("127.0.0.1:9", "WANDB_BASE_URL is '127.0.0.1:9'", "write it as https://HOST or"),
    ],
)
async def test_an_address_without_a_server_is_named_with_what_to_check(
    url: str, seen: str, remedy: str
) -> None:
    (only,) = await climbed(url)
    assert (only.name, only.passed, only.seen) == ("key", False, seen)
    assert remedy in only.remedy


async def test_why_the_key_may_start_no_run_is_said(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `wandb` itself reads the environment, and once.
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    teardown()
    viewer = {"data": {"viewer": {"username": "me", "entity": "team"}}}
    server.answers = [(200, viewer), (403, {"errors": [{"message": "no"}]})]  # type: ignore[attr-defined]
    *_, last = await climbed(f"http://127.0.0.1:{server.server_port}")
    assert (last.name, last.passed) == ("logged", False)
    assert last.seen.startswith("W&B takes no run: ")
    assert "403" in last.seen
    assert "let the key write to team/accept" in last.remedy


async def test_without_a_key_or_over_plain_http_nothing_is_sent() -> None:
    (only,) = await climbed("https://wandb.example", key="")
    assert only.remedy == "set WANDB_API_KEY in this environment"
    (only,) = await climbed("http://wandb.example")
    assert "in the clear" in only.seen


async def test_a_server_that_is_away_is_named() -> None:
    (only,) = await climbed("http://127.0.0.1:9")
    assert "check that this machine reaches W&B" in only.remedy


async def test_a_server_that_never_answers_is_given_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wandb, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (only,) = await climbed(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "did not answer in 0.2 s" in only.seen
    assert "check that this machine reaches W&B" in only.remedy
