"""Downloads a file of known size and digest, and resumes where a connection broke off."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from hillclimb.client.errors import ApiUnreachable, DownloadFailed, DownloadRefused

TRIES = 5
"""Connections per file before a download fails."""
PAUSE_S = 1.0
BLOCK_BYTES = 1 << 20


def download(
    fetch: Callable[[int], Iterator[bytes]],
    target: Path,
    *,
    size: int,
    sha256: str,
    overwrite: bool = False,
) -> None:
    """Write a file; what an earlier try downloaded lies beside it and is continued.

    `fetch` yields the bytes from a position on.

    A file that is already there is not downloaded again, and no other file is replaced.

    Raises:
        ApiUnreachable: the last connection broke off too.
        DownloadRefused: another file has this name.
        DownloadFailed: the file is not the one of the digest.
    """
    if _is_there(target, sha256):
        return
    if target.exists() and not overwrite:
        raise DownloadRefused(
            f"{target} is there with other content: choose another directory, or --force to"
            " overwrite it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("a+b") as file:
        digest = _digest(file, size)
        for left in reversed(range(TRIES)):
            try:
                for block in fetch(file.tell()):
                    digest.update(block)
                    file.write(block)
                break
            except ApiUnreachable:
                if not left:
                    raise
            time.sleep(PAUSE_S)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != sha256:
        partial.unlink()
        raise DownloadFailed(
            f"{target.name} arrived damaged: its checksum differs; download it again"
        )
    partial.replace(target)


def _is_there(target: Path, sha256: str) -> bool:
    if not target.is_file():
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _digest(file: BinaryIO, size: int) -> hashlib._Hash:
    """Return the digest of a partial file; a file that is too long is emptied first."""
    digest = hashlib.sha256()
    if file.tell() >= size:
        file.truncate(0)
    file.seek(0)
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest
