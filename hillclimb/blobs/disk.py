"""A blob store in a directory: one file per blob, replaced atomically and durably."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hillclimb.blobs.base import Method, StoreRefused, checked_key
from hillclimb.blobs.files import PART, partial, translated

_TRANSIENT = (
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN,
    errno.ENOTCONN, errno.EBUSY, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""Transient errors: a full or unresponsive disk or mount, too many open files."""


class DiskStore:
    """Stores blobs as files under `root`, which `check` creates."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self) -> None:
        """Create the directory, and check that files can be written and hard-linked there.

        A full or unresponsive disk is a transient fault, which raises StoreError or StoreFull.
        """
        with translated("check"):
            self._check_writing(self._root / "check")

    def _check_writing(self, probe: Path) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with partial(probe) as part, partial(probe) as link:
                part.touch()
                self._check_link(part, link)
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            raise StoreRefused(
                f"nothing can be written to {self._root} ({error.strerror or error}): choose"
                " another directory for the store, or give this user write permission"
            ) from error

    def _check_link(self, part: Path, link: Path) -> None:
        try:
            link.hardlink_to(part)
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            raise StoreRefused(
                f"no hard link can be made in {self._root} ({error.strerror or error}), which"
                " decides which of two attempts that save at once was first: choose a directory"
                " for the store on a file system with hard links"
            ) from error

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing the blob if it exists."""
        self._place(key, lambda part: part.write_bytes(data))

    def put_file(self, key: str, path: Path) -> None:
        """Copy a file into the store."""
        self._place(key, lambda part: shutil.copyfile(path, part))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` unless the key exists, by a hard link, which never replaces a file."""
        target = self._path(key)
        with translated(key), _written(target, lambda part: part.write_bytes(data)) as part:
            try:
                target.hardlink_to(part)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True

    def get(self, key: str) -> bytes:
        """Return a blob."""
        with translated(key):
            return self._path(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from byte `start`."""
        with translated(key), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def size(self, key: str) -> int:
        """Return a blob's size (bytes)."""
        with translated(key):
            if not self._path(key).is_file():
                raise FileNotFoundError
            return self._path(key).stat().st_size

    def get_file(self, key: str, path: Path) -> None:
        """Copy a blob to `path`."""
        with translated(key), partial(path) as part:
            shutil.copyfile(self._path(key), part)
            part.replace(path)

    def exists(self, key: str) -> bool:
        """Tell whether a blob of exactly this key exists."""
        with translated(key):
            return self._path(key).is_file()

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the keys under a prefix, sorted."""
        start = self._path(prefix) if prefix else self._root
        with translated(prefix):
            if start.is_file():
                return (prefix,)
            files = [
                Path(folder, name)
                for folder, _, names in os.walk(start, onerror=_unless_gone)
                for name in names
                if not name.startswith(PART)
            ]
        return tuple(sorted(path.relative_to(self._root).as_posix() for path in files))

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the sizes (bytes) of the blobs under a prefix by key."""
        sizes = {}
        with translated(prefix):
            for key in self.list(prefix):
                with suppress(FileNotFoundError):  # deleted since
                    sizes[key] = self._path(key).stat().st_size
        return sizes

    def delete_prefix(self, prefix: str) -> int:
        """Delete every blob under a prefix."""
        start, keys = self._path(prefix), self.list(prefix)
        with translated(prefix):
            if start.is_file():
                start.unlink()
            elif start.is_dir():
                shutil.rmtree(start)
        return len(keys)

    def presign(self, key: str, *, method: Method, expires_s: int) -> None:
        """Return None: a directory has no URLs."""
        checked_key(key)

    def local_path(self, key: str) -> Path | None:
        """Return the path of the blob's file, which may be missing."""
        return self._path(key)

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _place(self, key: str, write: Callable[[Path], object]) -> None:
        target = self._path(key)
        with translated(key), _written(target, write) as part:
            part.replace(target)
            _sync_directory(target.parent)


@contextmanager
def _written(target: Path, write: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a written and synced file beside `target`; delete it unless the block renames it."""
    with partial(target) as part:
        write(part)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        yield part


def _unless_gone(error: OSError) -> None:
    """Ignore a directory that was deleted during the listing; raise other errors."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
