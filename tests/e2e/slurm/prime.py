"""Prime Intellect's HTTP API as far as SkyPilot's driver asks: a platform that is sold out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SOLD_OUT = "Insufficient capacity for the requested GPU"


@dataclass(slots=True)
class SoldOutPlatform:
    """`wanted` are the bodies of the machines that were asked for."""

    url: str
    wanted: list[dict[str, Any]] = field(default_factory=list)

    def configure(self, home: Path) -> None:
        """Point the client that reads `home` at this server."""
        file = home / ".prime" / "config.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"api_key": "stub", "team_id": "", "base_url": self.url}))


@contextmanager
def sold_out_platform() -> Iterator[SoldOutPlatform]:
    """A server on loopback for the length of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    platform = SoldOutPlatform(url=f"http://127.0.0.1:{server.server_port}")
    _Handler.wanted = platform.wanted
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield platform
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    wanted: list[dict[str, Any]]

    def do_GET(self) -> None:
        """`/api/v1/pods` and `/api/v1/ssh_keys`: there are none."""
        self._answer(200, {"data": []})

    def do_DELETE(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.rstrip("/").endswith("/ssh_keys"):
            self._answer(200, {"id": "k1", "name": "k"})
            return
        self.wanted.append(json.loads(body))
        self._answer(400, {"message": SOLD_OUT, "detail": SOLD_OUT})

    def log_message(self, *_: object) -> None:
        return

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
