"""The store port: where files go that outlive the machine. No torch, usable by every process.

Errors:
    StoreError          the store did not do what was asked
    ├── BlobMissing     no blob under that key
    ├── StoreFull       no space, or over quota
    └── StoreRefused    never will as things are set up: credentials, bucket, region, clock
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

Method: TypeAlias = Literal["GET", "PUT"]
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a disk without space and of an exhausted quota."""


class StoreError(Exception):
    """The store did not do what was asked."""


class BlobMissing(StoreError):
    """There is no blob under that key."""


class StoreFull(StoreError):
    """The store has no space left, or the quota is used up."""


class StoreRefused(StoreError):
    """The store will not serve us until something is set up otherwise; the message says what."""


class BlobStore(Protocol):
    """Bytes under keys such as `runs/run_1/attempt-1/events/000001.jsonl`.

    A blob is there whole or not at all. A prefix means whole path segments: `a/b` covers `a/b` and
    `a/b/c`, never `a/bc`. All methods block and raise `StoreError`; async callers use a thread.
    """

    def check(self) -> None:
        """Find out now what would fail later: that the store is there and can `put_if_absent`.

        Raises:
            StoreRefused: it cannot serve us; the message says what to change.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing what was there."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Store a file's content, replacing what was there; large files are sent in parts."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless the key exists and return whether it was stored.

        Of several callers at once exactly one gets True.
        """
        ...

    def get(self, key: str) -> bytes:
        """Return a blob.

        Raises:
            BlobMissing: there is none.
        """
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes of a blob from byte `start`; none from its end on.

        Raises:
            BlobMissing: there is none.
        """
        ...

    def size(self, key: str) -> int:
        """Return a blob's size (bytes).

        Raises:
            BlobMissing: there is none.
        """
        ...

    def get_file(self, key: str, path: Path) -> None:
        """Write a blob to `path`, whole or not at all, making its parents.

        Raises:
            BlobMissing: there is none.
        """
        ...

    def exists(self, key: str) -> bool:
        """Tell whether there is a blob under exactly this key."""
        ...

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted; the empty prefix covers all."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix (not empty) and return how many there were."""
        ...

    def presign(self, key: str, *, method: Method, expires_s: int) -> str | None:
        """Return an address at which anyone can GET or PUT the blob until it expires.

        None when the store has no addresses: its blobs are read and written here. Whether there is
        a blob to GET is not looked up.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """Return where the blob lies on this machine, or None when the store is elsewhere."""
        ...


def checked_key(key: str) -> str:
    """Return `key` when it is a plain relative path.

    Raises:
        StoreError: it is empty, absolute, has an empty, `.` or `..` segment, or characters that
            cannot be written in a name or a listing.
    """
    segments = key.split("/")
    is_plain = "\\" not in key and "\x7f" not in key and all(char >= " " for char in key)
    if not is_plain or any(part in ("", ".", "..") for part in segments):
        raise StoreError(f"not a blob key: {key!r}")
    return key
