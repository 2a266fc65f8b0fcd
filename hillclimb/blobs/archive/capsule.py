"""Reads the file of a capsule, which anybody may have made: sizes first, then digests, then JSON.

Nothing is unpacked by its name, and nothing is read beyond the limits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from pydantic import ValidationError

from hillclimb.blobs.archive.zip_file import ENCRYPTED, UNREADABLE, ArchiveRefused
from hillclimb.protocol.payloads.studies.capsule import (
    CAPSULE_SCHEMA,
    MANIFEST,
    OPTIONAL,
    REQUIRED,
    CapsuleManifest,
)

MAX_BYTES = 16 << 30
"""Limit of all members together, unpacked (bytes)."""
MAX_DOCUMENT = 64 << 20
"""Limit of a JSON document or of a line, which are held in memory (bytes)."""
MAX_ROWS = 4 << 30
"""Limit of the unpacked rows of a dataset (bytes)."""
CHUNK_BYTES = 1 << 20


class CapsuleRefused(ArchiveRefused):
    """A capsule is damaged, of a newer version, or lacks what a fork needs."""


class CapsuleArchive:
    """An open capsule; `open` checks names and sizes, `verify` the digest of every member.

    Every method raises CapsuleRefused with a sentence that names the member.
    """

    def __init__(self, archive: ZipFile, manifest: CapsuleManifest) -> None:
        self._archive = archive
        self.manifest = manifest

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Yield the capsule in a file, with its names, sizes and schema version checked."""
        try:
            archive = ZipFile(path)
        except FileNotFoundError as error:
            raise CapsuleRefused(f"there is no file {path}") from error
        except (*UNREADABLE, ValueError) as error:
            raise CapsuleRefused(f"{path} is not a capsule, or was cut off: {error}") from error
        with archive:
            _check_members(archive.infolist())
            manifest = _manifest(_document(archive, MANIFEST))
            _check_listed({each.filename for each in archive.infolist()}, manifest)
            yield cls(archive, manifest)

    def verify(self) -> None:
        """Compare size and SHA-256 of every member with the manifest."""
        for name, member in self.manifest.members.items():
            digest, size = hashlib.sha256(), 0
            with _reading(self._archive, name) as content:
                while chunk := content.read(CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
            if (size, digest.hexdigest()) != (member.size_bytes, member.sha256):
                raise CapsuleRefused(
                    f"the capsule's member {name} is not what its manifest says: its SHA-256 is"
                    f" {digest.hexdigest()}, not {member.sha256}"
                )

    def has(self, name: str) -> bool:
        """Tell whether the capsule has this member."""
        return name in self.manifest.members

    def document(self, name: str) -> Any:  # noqa: ANN401 (any JSON)
        """Return a member that is one JSON document."""
        return _document(self._archive, name)

    def lines(self, name: str) -> Generator[Any, None, None]:
        """Yield the JSON of each line of a member."""
        with _reading(self._archive, name) as content:
            while line := content.readline(MAX_DOCUMENT):
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise CapsuleRefused(f"{name} has a line that is no JSON: {error}") from error

    def save_packed(self, name: str, target: Path) -> None:
        """Write a member that is compressed by gzip to a file, if it unpacks within the limit."""
        with _reading(self._archive, name) as content, target.open("wb") as file:
            while chunk := content.read(CHUNK_BYTES):
                file.write(chunk)
        size = 0
        with _explained(name), gzip.open(target, "rb") as rows:
            while chunk := rows.read(CHUNK_BYTES):
                size += len(chunk)
                if size > MAX_ROWS:
                    raise CapsuleRefused(f"{name} unpacks to more than {MAX_ROWS:,} bytes")


def _check_members(members: list[ZipInfo]) -> None:
    """Refuse names that no capsule has, repeated ones, other compressions, and large members."""
    names = [each.filename for each in members]
    for each in members:
        if names.count(each.filename) > 1:
            raise CapsuleRefused(f"the capsule has {each.filename!r} more than once")
        _check_member(each)
    if sum(each.file_size for each in members) > MAX_BYTES:
        raise CapsuleRefused(f"the capsule unpacks to more than {MAX_BYTES:,} bytes")
    for name in (MANIFEST, *REQUIRED):
        if name not in names:
            raise CapsuleRefused(f"the capsule has no {name}")


def _check_member(member: ZipInfo) -> None:
    name = member.filename
    if name not in (MANIFEST, *REQUIRED, *OPTIONAL):
        raise CapsuleRefused(f"{name!r} is no member of a capsule")
    if member.flag_bits & ENCRYPTED or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise CapsuleRefused(f"{name} is encrypted or compressed in another way")
    if name.endswith(".json") and member.file_size > MAX_DOCUMENT:
        raise CapsuleRefused(f"{name} unpacks to more than {MAX_DOCUMENT:,} bytes")


def _check_listed(names: set[str], manifest: CapsuleManifest) -> None:
    """Refuse members that the manifest does not list, and listed ones that are missing."""
    for name in sorted(names - {MANIFEST} ^ manifest.members.keys()):
        state = "is missing" if name in manifest.members else "is not in its manifest"
        raise CapsuleRefused(f"the capsule's member {name} {state}")


def _manifest(content: object) -> CapsuleManifest:
    number = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(number, int) and number > CAPSULE_SCHEMA:
        raise CapsuleRefused(
            f"the capsule has schema version {number}, and this version of Hillclimb reads up to"
            f" {CAPSULE_SCHEMA}: upgrade it"
        )
    try:
        return CapsuleManifest.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(str(part) for part in first["loc"])
        raise CapsuleRefused(f"{MANIFEST} is not valid: {place}: {first['msg']}") from error


def _document(archive: ZipFile, name: str) -> Any:  # noqa: ANN401 (any JSON)
    with _reading(archive, name) as content:
        text = content.read()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CapsuleRefused(f"{name} is no JSON: {error}") from error


@contextmanager
def _reading(archive: ZipFile, name: str) -> Iterator[IO[bytes]]:
    with _explained(name), archive.open(name) as content:
        yield content


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise CapsuleRefused(f"the capsule's member {name} is damaged: {error}") from error
