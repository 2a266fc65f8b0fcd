"""Saves a stack, running or stopped, to a folder.

The database is one moment's. Blobs are copied before and after it: whatever a row of it names was
in the store then, also if a trainer has deleted it since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from hillclimb.stack.backup import database
from hillclimb.stack.backup.errors import BackupRefused
from hillclimb.stack.backup.files import IN_CLEAR, MADE_AGAIN, FileCopier
from hillclimb.stack.backup.manifest import (
    BLOBS,
    DATABASE,
    MANIFEST,
    RUNNER,
    RUNS,
    SECRETS,
    BackupManifest,
)
from hillclimb.stack.errors import StackRunning
from hillclimb.stack.options import StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.state.credentials import Credentials, load_credentials
from hillclimb.stack.state.directory import StateDirectory, write_private

Say = Callable[[str], None]


def save(options: StackOptions, target: Path, *, with_secrets: bool, say: Say) -> BackupManifest:
    """Save the stack of a state directory to `target`, which is new or empty; return the manifest.

    `with_secrets` also copies the keys, without which secrets of projects do not decrypt.

    Raises:
        BackupRefused: there is no stack, its database is another server's, or `target` has files.
        StackRunning: the stack is being started or stopped.
        ServiceFailed: the database does not start, or cannot be read.
    """
    state = StateDirectory(options.state_dir)
    credentials = load_credentials(state)
    if credentials is None or not (state.path / "pg" / "data").is_dir():
        raise BackupRefused(
            f"{state.path} has no embedded stack to save: set HILLCLIMB_STATE_DIR, or save an"
            " external database with its own tools (docs/backup.md)."
        )
    if options.database_url is not None:
        raise BackupRefused(
            "DATABASE_URL names a server of its own: save it with its own tools (docs/backup.md)."
        )
    _prepare(target)
    copier = FileCopier(target)
    copies_blobs = options.blobs_url is None
    with _undisturbed(state), database.running(_server(state, credentials)) as server:
        if copies_blobs:
            copier.copy_folder(state.path / BLOBS, BLOBS)
        schema = database.schema_of(server)
        say("saving the database")
        database.dump(server, target / DATABASE)
        copier.add(DATABASE)
        if copies_blobs:
            say("saving blobs")
            copier.copy_folder(state.path / BLOBS, BLOBS)
        copier.copy_folder(state.path / RUNS, RUNS, without=MADE_AGAIN)
        copier.copy_folder(state.path / RUNNER, RUNNER, without=IN_CLEAR)
    if with_secrets:
        copier.copy_file(state.secrets_file, SECRETS)
    manifest = BackupManifest(
        created_at=datetime.now(UTC),
        schema_revision=schema.revision,
        postgres_version=schema.postgres_version,
        blobs_url=options.blobs_url,
        secret_key_sha256=key_digest(credentials),
        files=tuple(sorted(copier.saved.values(), key=lambda each: each.path)),
    )
    write_private(target / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
    return manifest


def key_digest(credentials: Credentials) -> str:
    """Return the SHA-256 of the key that decrypts secrets; it has 256 random bits."""
    return hashlib.sha256(credentials.secret_key.encode()).hexdigest()


def _prepare(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupRefused(f"{target} is not empty: each backup has a folder of its own.")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.chmod(0o700)


@contextmanager
def _undisturbed(state: StateDirectory) -> Iterator[None]:
    """Keep a stopped stack from being started meanwhile; a running one goes on."""
    if state.read().supervised():
        yield
        return
    with state.hold():
        yield


def _server(state: StateDirectory, credentials: Credentials) -> PostgresServer:
    record = state.read()
    if record.supervised() and record.state != "ready":
        raise StackRunning("The stack is being started or stopped: save it afterwards.")
    return PostgresServer(
        directory=state.path / "pg",
        port=record.ports.get("postgres", 0),
        password=credentials.postgres_password,
    )
