"""The blob store port: storage for files that outlive the machine; imports no torch.

Errors:
    StoreError          an operation failed
    ├── BlobMissing     no blob under that key
    │   └── KeyInvalid  there can be none: it is no key
    ├── StoreFull       no space, or over quota
    └── StoreRefused    retries cannot help: credentials, bucket, region, clock
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

Method: TypeAlias = Literal["GET", "PUT"]
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a disk without space and of an exhausted quota."""


class StoreError(Exception):
    """An operation of the store failed."""


class BlobMissing(StoreError):
    """There is no blob under that key."""


class KeyInvalid(BlobMissing):
    """No blob can have that key."""


class StoreFull(StoreError):
    """The store has no space left, or the quota is used up."""


class StoreRefused(StoreError):
    """The store refuses us until its set-up changes; the message names the change."""


class BlobStore(Protocol):
    """Bytes under keys such as `runs/run_1/attempt-1/events/000001.jsonl`.

    A blob is complete or absent. A prefix matches whole path segments: `a/b` covers `a/b` and
    `a/b/c`, never `a/bc`. All methods block and raise `StoreError`; async callers use a thread.
    """

    def check(self) -> None:
        """Check that the store exists and supports `put_if_absent`, before a run depends on it.

        Raises:
            StoreRefused: its set-up must change; the message says how.
        """
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing the blob if it exists."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Store a file's content, replacing the blob if it exists; large files go in parts."""
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
        """Write a blob to `path`, complete or not at all, and create parent directories.

        Raises:
            BlobMissing: there is none.
        """
        ...

    def exists(self, key: str) -> bool:
        """Tell whether a blob of exactly this key exists."""
        ...

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted; the empty prefix covers all."""
        ...

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the sizes (bytes) of the blobs under a prefix by key, in the order of `list`."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix (not empty) and return their number."""
        ...

    def presign(self, key: str, *, method: Method, expires_s: int) -> str | None:
        """Return a URL at which anyone can GET or PUT the blob for `expires_s` seconds.

        None for a store without URLs, whose blobs are local files. The blob need not exist.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """Return the blob's path on this machine, or None for a remote store."""
        ...


def checked_key(key: str) -> str:
    """Return `key` when it is a plain relative path.

    Raises:
        KeyInvalid: it is empty, absolute, has an empty, `.` or `..` segment, or characters that
            cannot be written in a name or a listing.
    """
    segments = key.split("/")
    is_plain = "\\" not in key and "\x7f" not in key and all(char >= " " for char in key)
    if not is_plain or any(part in ("", ".", "..") for part in segments):
        raise KeyInvalid(f"not a blob key: {key!r}")
    return key
