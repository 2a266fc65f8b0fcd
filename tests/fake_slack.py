"""A Slack Web API on loopback: checks the token, records what was posted, can fail on demand."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "xoxb-of-the-fake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How the next call is answered instead of with success."""

    status: int = 200
    error: str | None = None
    retry_after: str | None = None
    hang: bool = False
    """Accept the call, record it, and never answer (the connection closes at the end)."""


@dataclass(slots=True, kw_only=True)
class FakeSlack:
    """`base_url` to call, `posts` accepted so far, `failures` to play first."""

    base_url: str
    posts: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0
    failures: deque[Failure] = field(default_factory=deque)
    released: threading.Event = field(default_factory=threading.Event)


@contextmanager
def run_fake_slack() -> Iterator[FakeSlack]:
    """Serve on a free loopback port until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    slack = FakeSlack(base_url=f"http://127.0.0.1:{server.server_port}/api")
    server.slack = slack  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield slack
    finally:
        slack.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        slack: FakeSlack = self.server.slack  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        slack.calls += 1
        failure = slack.failures.popleft() if slack.failures else None
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(200, {"ok": False, "error": "invalid_auth"})
        elif failure is not None:
            self._fail(slack, failure, body)
        elif self.path != "/api/chat.postMessage":
            self._answer(200, {"ok": False, "error": "unknown_method"})
        else:
            self._answer(200, _post(slack, body))

    def _fail(self, slack: FakeSlack, failure: Failure, body: dict[str, Any]) -> None:
        if failure.hang:
            _post(slack, body)
            slack.released.wait(30)
            return
        headers = {"Retry-After": failure.retry_after} if failure.retry_after else {}
        self._answer(failure.status, {"ok": False, "error": failure.error or "failed"}, headers)

    def _answer(
        self, status: int, payload: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        data = json.dumps(payload).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _post(slack: FakeSlack, body: dict[str, Any]) -> dict[str, Any]:
    if "text" not in body:
        return {"ok": False, "error": "no_text"}
    slack.posts.append(body)
    ts = f"1700000000.{len(slack.posts):06d}"
    return {"ok": True, "channel": "C0FAKE", "ts": ts}
