"""A blob store in a directory: one file per blob, replaced atomically and durably."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.stores.base import BlobMissing, StoreError, StoreFull, checked_key

_PART = ".part-"
"""Prefix of a file being written; never a blob."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskStore:
    """Blobs under `root`, which is made when missing."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing what was there."""
        self._place(key, lambda part: part.write_bytes(data))

    def put_file(self, key: str, path: Path) -> None:
        """Copy a file into the store."""
        self._place(key, lambda part: shutil.copyfile(path, part))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless the key exists: a hard link, which fails where a file is."""
        target = self._path(key)
        with _translated(key), _written(target, lambda part: part.write_bytes(data)) as part:
            try:
                target.hardlink_to(part)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True

    def get(self, key: str) -> bytes:
        """Return a blob."""
        with _translated(key):
            return self._path(key).read_bytes()

    def get_file(self, key: str, path: Path) -> None:
        """Copy a blob to `path`."""
        with _translated(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path(key), path)

    def exists(self, key: str) -> bool:
        """Tell whether there is a blob under exactly this key."""
        return self._path(key).is_file()

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted."""
        start = self._path(prefix) if prefix else self._root
        if start.is_file():
            return (prefix,)
        files = (path for path in start.rglob("*") if path.is_file())
        return tuple(
            sorted(
                path.relative_to(self._root).as_posix()
                for path in files
                if not path.name.startswith(_PART)
            )
        )

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix."""
        start, keys = self._path(prefix), self.list(prefix)
        with _translated(prefix):
            if start.is_file():
                start.unlink()
            elif start.is_dir():
                shutil.rmtree(start)
        return len(keys)

    def local_path(self, key: str) -> Path | None:
        """Return the blob's file."""
        return self._path(key)

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _place(self, key: str, write: Callable[[Path], object]) -> None:
        target = self._path(key)
        with _translated(key), _written(target, write) as part:
            part.replace(target)
            _sync_directory(target.parent)


@contextmanager
def _written(target: Path, write: Callable[[Path], object]) -> Iterator[Path]:
    """A finished, flushed file beside `target`; gone afterwards unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f"{_PART}{uuid.uuid4().hex}"
    try:
        write(part)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        yield part
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BlobMissing(f"no blob {key!r}") from error
    except OSError as error:
        kind = StoreFull if error.errno in _FULL else StoreError
        raise kind(f"blob {key!r}: {error.strerror or error}") from error
