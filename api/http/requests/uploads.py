"""Receives uploads of any size: streams them to disk, never into memory."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from anyio.to_thread import run_sync
from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from api.http.problems import MALFORMED, TOO_LARGE, Problem

FORM = "multipart/form-data"
WRITE_BYTES = 1 << 20
MAX_OPTIONS_BYTES = 64_000_000
"""Limit of the options of an upload: a published split of a million tasks fits."""
PARTS = ("options", "tasks")
EMPTY = hashlib.sha256().hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The contents of an upload."""

    options: bytes
    """A JSON document; empty without one."""
    path: Path | None
    """The file; null without one."""
    sha256: str
    """SHA-256 of the file."""


async def receive(request: Request, folder: Path, options: str | None) -> Upload:
    """Return the request's file and options.

    A form has them as its parts `tasks` and `options`; any other body is the file itself, and
    `options` comes from the query.

    Raises:
        Problem: the form has other parts or cannot be read, or the client disconnected.
    """
    path = folder / "upload"
    text = (options or "").encode()
    try:
        if request.headers.get("content-type", "").startswith(FORM):
            return await _from_form(request, path, text)
        with path.open("wb") as file:
            sha256 = await _to_file(request, file)
    except ClientDisconnect as error:
        raise Problem(MALFORMED, "The connection was closed before the end of the file.") from error
    return _upload(text, path, sha256)


async def receive_file(request: Request, folder: Path) -> Path:
    """Return the body as a file in the folder.

    Raises:
        Problem: there is no body, or the client disconnected.
    """
    upload = await receive(request, folder, None)
    if upload.path is None or upload.options:
        raise Problem(MALFORMED, "Send the file itself as the body of the request.")
    return upload.path


async def _to_file(request: Request, file: BinaryIO) -> str:
    digest, pending = hashlib.sha256(), bytearray()

    def write(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    async for chunk in request.stream():
        pending += chunk
        if len(pending) >= WRITE_BYTES:
            await run_sync(write, bytes(pending))
            pending.clear()
    await run_sync(write, bytes(pending))
    return digest.hexdigest()


async def _from_form(request: Request, path: Path, options: bytes) -> Upload:
    async with request.form(max_files=2, max_fields=2) as form:
        unknown_parts = sorted(set(form) - set(PARTS))
        if unknown_parts:
            raise Problem(
                MALFORMED, f"The form has a part {unknown_parts[0]!r}: send `tasks` and `options`."
            )
        text, file = form.get("options"), form.get("tasks")
        if isinstance(text, UploadFile):
            options = await text.read(MAX_OPTIONS_BYTES + 1)
        elif text is not None:
            options = text.encode()
        if len(options) > MAX_OPTIONS_BYTES:
            raise Problem(TOO_LARGE, f"The options may have {MAX_OPTIONS_BYTES:,} bytes at most.")
        if isinstance(file, str):
            raise Problem(MALFORMED, "The part `tasks` is text: send it as a file.")
        if file is None:
            return Upload(options=options, path=None, sha256=EMPTY)
        return _upload(options, path, await run_sync(_copy, file.file, path))


def _copy(source: BinaryIO, path: Path) -> str:
    with path.open("wb") as target:
        shutil.copyfileobj(source, target, WRITE_BYTES)
    with path.open("rb") as copied:
        return hashlib.file_digest(copied, "sha256").hexdigest()


def _upload(options: bytes, path: Path, sha256: str) -> Upload:
    return Upload(options=options, path=None if sha256 == EMPTY else path, sha256=sha256)
