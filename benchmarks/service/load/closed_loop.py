"""Requests over several connections, each of which sends the next one when it has its answer.

One thread and plain sockets: a client of threads would take as much CPU time as the service, from
the same cores, and what its own interpreter makes it wait would count as the service's.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Connection:
    """A connection that has one request at a time under way."""

    socket: socket.socket
    began: float = 0.0
    received: bytes = b""

    def send(self, request: bytes) -> None:
        """Send the next request."""
        self.received, self.began = b"", time.perf_counter()
        self.socket.sendall(request)

    def is_answered(self) -> bool:
        """Read what has come; return True once the answer is whole."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise RuntimeError(f"the service closed a connection after {self.received[:200]!r}")
        self.received += part
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return False
        lines = head.lower().split(b"\r\n")
        length = next(line for line in lines if line.startswith(b"content-length:"))
        return len(body) >= int(length.partition(b":")[2])

    def is_accepted(self, request: bytes) -> bool:
        """Send a request and wait for its answer; return True if it is a success."""
        self.send(request)
        while not self.is_answered():
            pass
        return self.received.startswith(b"HTTP/1.1 2")


def connected(port: int) -> Connection:
    """Return a connection to this machine; a socket waits up to 60 s for each part."""
    return Connection(socket.create_connection(("127.0.0.1", port), timeout=60))


def post(path: str, body: bytes, *, port: int, key: str | None) -> bytes:
    """Return the bytes of a request with a JSON body, and with the key if there is one."""
    authorization = f"Authorization: Bearer {key}\r\n" if key is not None else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def closed_loop(port: int, request: bytes, *, connections: int, requests: int) -> list[float]:
    """Send so many requests in all; return how long each answer took (ms), in their order.

    Raises:
        RuntimeError: an answer is no success, or a connection was closed.
    """
    times: list[float] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            connection = connected(port)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(request)
        left = requests - connections
        while len(times) < requests:
            for key, _ in selector.select(timeout=60):
                connection = key.data
                if not connection.is_answered():
                    continue
                times.append(1e3 * (time.perf_counter() - connection.began))
                if not connection.received.startswith(b"HTTP/1.1 2"):
                    raise RuntimeError(f"refused: {connection.received[:500]!r}")
                if left > 0:
                    left -= 1
                    connection.send(request)
        for key in list(selector.get_map().values()):
            key.data.socket.close()
    return times
