"""Restores a backup to a new state directory, complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from hillclimb.stack.backup import database
from hillclimb.stack.backup.errors import BackupInvalid, BackupRefused
from hillclimb.stack.backup.manifest import (
    BLOBS,
    DATABASE,
    RUNNER,
    RUNS,
    SECRETS,
    BackupManifest,
    check_files,
    read_manifest,
)
from hillclimb.stack.backup.save import key_digest
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.state.credentials import Credentials
from hillclimb.stack.state.directory import StateDirectory, write_private

Say = Callable[[str], None]
POSTGRES_VERSION = 18
"""Major version of the embedded server."""
UNFINISHED = ".restoring"
"""Suffix of the directory that is renamed last."""


def restore(
    options: StackOptions,
    source: Path,
    *,
    secrets: Path | None,
    new_secrets: bool,
    say: Say,
) -> BackupManifest:
    """Restore a backup to the state directory of the options; return its manifest.

    The keys are those of the backup or of the file `secrets`. With `new_secrets` they are made
    anew: then no stored secret of a project decrypts.

    Raises:
        BackupRefused: the state directory has files, or the keys are missing or other ones.
        BackupInvalid: the backup is incomplete, damaged, or of a newer version.
        ServiceFailed: the database does not start, or refuses the backup.
    """
    manifest = read_manifest(source)
    _check_version(manifest)
    if manifest.blobs_url != options.blobs_url:
        raise BackupRefused(
            f"The stack had its blobs in {manifest.blobs_url or 'its state directory'}: set"
            " HILLCLIMB_BLOBS_URL as it was."
        )
    target = options.state_dir
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupRefused(
            f"{target} is not empty: move it away, or set HILLCLIMB_STATE_DIR to a new directory."
        )
    credentials = _credentials(source, manifest, secrets, new_secrets=new_secrets)
    say("checking the backup")
    check_files(source, manifest)
    unfinished = target.with_name(target.name + UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    state = StateDirectory(unfinished)
    state.create()
    write_private(state.secrets_file, credentials.model_dump_json(indent=2) + "\n")
    say("restoring blobs and runs")
    for saved in manifest.files:
        if saved.path.partition("/")[0] in (BLOBS, RUNS, RUNNER):
            _place(source / saved.path, unfinished / saved.path)
    say("restoring the database")
    server = PostgresServer(
        directory=unfinished / "pg", port=0, password=credentials.postgres_password
    )
    with database.running(server) as running:
        database.load(running, source / DATABASE)
    if target.exists():
        target.rmdir()
    unfinished.rename(target)
    return manifest


def _check_version(manifest: BackupManifest) -> None:
    files = (CODE_ROOT / "migrations" / "versions").glob("[0-9]*_*.py")
    known = {path.name.partition("_")[0] for path in files}
    if manifest.schema_revision not in known:
        raise BackupInvalid(
            f"The backup is at revision {manifest.schema_revision}, and this version knows those up"
            f" to {max(known)}: update before you restore it."
        )
    if manifest.postgres_version > POSTGRES_VERSION:
        raise BackupInvalid(
            f"The backup is of PostgreSQL {manifest.postgres_version}, and this version has"
            f" {POSTGRES_VERSION}: update before you restore it."
        )


def _credentials(
    source: Path, manifest: BackupManifest, secrets: Path | None, *, new_secrets: bool
) -> Credentials:
    if new_secrets:
        return Credentials()
    inside = source / SECRETS
    file = secrets or (inside if inside.is_file() else None)
    if file is None:
        raise BackupRefused(
            "The backup is without its keys: name their copy with --secrets FILE. With"
            " --new-secrets the stack gets new ones, and every secret of a project must be set"
            " again."
        )
    try:
        credentials = Credentials.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise BackupRefused(f"{file} is not the secrets.json of a stack.") from error
    if key_digest(credentials) != manifest.secret_key_sha256:
        raise BackupRefused(f"{file} has the keys of another stack than that of the backup.")
    return credentials


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o600)
    with target.open("rb") as file:
        os.fsync(file.fileno())
