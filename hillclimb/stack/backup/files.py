"""Copies of files while trainers write others: each with its SHA-256, without what is no result."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.blobs.files import PART
from hillclimb.protocol.rundir import MODEL, QUALIFY, RESUME, WEIGHTS
from hillclimb.stack.backup.manifest import SavedFile, chunks_of, digest_of

MADE_AGAIN = frozenset({MODEL, QUALIFY, RESUME, WEIGHTS})
"""Folders of an attempt that the next one makes again: downloads, and copies of blobs."""
IN_CLEAR = frozenset({"secrets"})
"""Folder of the runner with the secrets of attempts in clear; the service sends them again."""

Stamp = tuple[int, int]
"""Size and time of the last change (ns)."""


@dataclass(slots=True)
class FileCopier:
    """Copies folders into a backup; repeated for the same folder, what is new or changed since."""

    target: Path
    saved: dict[str, SavedFile] = field(default_factory=dict)
    _stamps: dict[str, Stamp] = field(default_factory=dict)

    def copy_folder(self, source: Path, name: str, *, without: Collection[str] = ()) -> None:
        """Copy the files under `source`, but for folders `without`, to `name` in the backup."""
        for path in sorted(_files_of(source, without)):
            relative = f"{name}/{path.relative_to(source).as_posix()}"
            try:
                status = path.stat()
                stamp = (status.st_size, status.st_mtime_ns)
                if self._stamps.get(relative) != stamp:
                    self.copy_file(path, relative)
                    self._stamps[relative] = stamp
            except FileNotFoundError:  # deleted since the listing
                continue

    def copy_file(self, source: Path, relative: str) -> None:
        """Copy one file, of which only this user can read the copy."""
        target = self.target / relative
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.saved[relative] = _copied(source, target, relative)

    def add(self, relative: str) -> None:
        """Note a file that is in the backup already."""
        path = self.target / relative
        size, sha256 = path.stat().st_size, digest_of(path)
        self.saved[relative] = SavedFile(path=relative, size_bytes=size, sha256=sha256)


def _copied(source: Path, target: Path, relative: str) -> SavedFile:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks_of(source):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return SavedFile(path=relative, size_bytes=size, sha256=digest.hexdigest())


def _files_of(source: Path, without: Collection[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(source):
        folders[:] = [each for each in folders if each not in without]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(PART) and path.is_file() and not path.is_symlink():
                yield path
