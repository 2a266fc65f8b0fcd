"""An HTTP server that answers as it is told to: for what no server of ours would ever say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer. A body in parts is sent for as long as the client reads."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@asynccontextmanager
async def odd_server(
    answer: Said | Callable[[Asked], Said],
) -> AsyncIterator[tuple[str, list[Asked]]]:
    """Serve on loopback; yield the URL and what was asked so far."""
    asked: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            asked.append(request)
            await _write(writer, answer if isinstance(answer, Said) else answer(request))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method=method, path=urlsplit(target).path, headers=headers, body=body)


async def _write(writer: asyncio.StreamWriter, said: Said) -> None:
    headers = {**said.headers, "connection": "close"}
    parts = [said.body] if isinstance(said.body, bytes) else said.body
    if isinstance(said.body, bytes):
        headers["content-length"] = str(len(said.body))
    lines = [f"HTTP/1.1 {said.status} {HTTPStatus(said.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    for part in parts:
        writer.write(part)
        await writer.drain()
