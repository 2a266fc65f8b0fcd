"""`manifest.json` of a backup: every file with its SHA-256; it is written last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hillclimb.blobs.base import KeyInvalid, checked_key
from hillclimb.stack.backup.errors import BackupInvalid

MANIFEST = "manifest.json"
DATABASE = "database.dump"
SECRETS = "secrets.json"
BLOBS, RUNS, RUNNER = "blobs", "runs", "runner"
CHUNK_BYTES = 1 << 20


class SavedFile(BaseModel):
    """A file of the backup, by its path in it."""

    model_config = ConfigDict(frozen=True)

    path: str
    size_bytes: int
    sha256: str


class BackupManifest(BaseModel):
    """The contents of a backup."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    """Of the layout of a backup."""
    created_at: datetime
    schema_revision: str
    """The migration of the database."""
    postgres_version: int
    """Major version of the server."""
    blobs_url: str | None
    """The blob store, if it is not the state directory's: its blobs are not in the backup."""
    secret_key_sha256: str
    """SHA-256 of the key that decrypts the project's secrets, by which `restore` knows it again."""
    files: tuple[SavedFile, ...]


def read_manifest(folder: Path) -> BackupManifest:
    """Return the manifest of a backup; raises BackupInvalid."""
    file = folder / MANIFEST
    if not file.is_file():
        raise BackupInvalid(
            f"{folder} is no complete backup: it has no {MANIFEST}, which is written last."
        )
    try:
        return BackupManifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise BackupInvalid(
            f"{file} is not one that this version reads: restore with the version that made it."
        ) from error


def check_files(folder: Path, manifest: BackupManifest) -> None:
    """Raise BackupInvalid for the first file that is missing or not as the manifest has it."""
    for saved in manifest.files:
        try:
            path = folder / checked_key(saved.path)
        except KeyInvalid as error:
            raise BackupInvalid(f"{saved.path!r} is no path in a backup.") from error
        if not path.is_file():
            raise BackupInvalid(f"{path} is missing: the backup is damaged.")
        if path.stat().st_size != saved.size_bytes or digest_of(path) != saved.sha256:
            raise BackupInvalid(f"{path} is not what was saved: the backup is damaged.")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    for chunk in chunks_of(path):
        digest.update(chunk)
    return digest.hexdigest()


def chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in parts."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
