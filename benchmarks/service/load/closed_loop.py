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
class _Connection:
    socket: socket.socket
    began: float = 0.0
    received: bytes = b""

    def send(self, request: bytes) -> None:
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


def post(path: str, body: bytes, *, port: int, key: str) -> bytes:
    """Return the bytes of a request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
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
            connection = _Connection(socket.create_connection(("127.0.0.1", port), timeout=60))
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
