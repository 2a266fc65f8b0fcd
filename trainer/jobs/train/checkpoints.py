"""Checkpoints: files first, manifest last; only a directory with a manifest is a checkpoint.

A checkpoint is a directory `checkpoints/global_step_N/attempt-A/` of the run in the blob store, and
on the local disk until the store has all of it. `put_if_absent` writes the manifest, so of two
processes at most one completes it; readers check every size and hash.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.checkpoint_manifest import Manifest, ManifestFile
from hillclimb.protocol.rundir import (
    CHECKPOINTS,
    MANIFEST,
    QUALIFIED,
    REFUSED,
    AttemptDir,
    checkpoint_name,
    run_key,
)
from trainer.attempt.scratch import remove_earlier_copies
from trainer.attempt.storage import raise_storage_full
from trainer.errors import CheckpointError

_FILE = re.compile(rf"^((?:[^/]+/){{1,8}}{CHECKPOINTS}/global_step_(\d+)/attempt-(\d+))/(.+)$")
_CHUNK = 1024 * 1024
FILES_AT_ONCE = 4
"""Files of a checkpoint on their way to the store; of each, S3 takes several parts at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A complete checkpoint: its blob key, path in the run, and manifest."""

    key: str
    path: str
    manifest: Manifest
    manifest_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position of a run in its schedule and task order, as recorded in a checkpoint."""

    step: int
    sampler: Mapping[str, JsonValue]
    buffer: Mapping[str, JsonValue]
    evaluated_step: int | None
    final: bool = False
    ran_s: float = 0.0


class Checkpoints:
    """Writes, finds and prunes the checkpoints of one run."""

    def __init__(
        self,
        store: BlobStore,
        attempt_dir: AttemptDir,
        *,
        config_hash: str,
        parent: str | None,
        still_current: Callable[[], None],
    ) -> None:
        """`still_current` raises if a newer attempt owns the run.

        It is called before a manifest is put, and before one is deleted.
        """
        self._store = store
        self._dir = attempt_dir
        self._run_id = attempt_dir.run_dir.name
        self._config_hash = config_hash
        self._parent = parent
        self._still_current = still_current
        self._own_keys: set[str] = set()
        """Keys of the checkpoints that are being saved or were, and are not deleted. A deletion
        beside a save takes none of them for incomplete, whatever its listing showed before."""

    def save(self, position: Position, write: Callable[[Path], None]) -> Saved:
        """Let `write` put its files into a directory and make a checkpoint of it; see `begin`."""
        return self.begin(position, lambda directory: lambda: write(directory))()

    def begin(
        self, position: Position, begin_write: Callable[[Path], Callable[[], None]]
    ) -> Callable[[], Saved]:
        """Let `begin_write` copy its state; the returned function writes and stores it.

        Training may go on before the returned function is called, in any thread. A step that this
        attempt has completed before is left as it is and returned.

        Raises (either of the two):
            CheckpointError: it was completed under another configuration.
            StorageFull: no space on the disk or in the store.
            StoreError: the store does not answer.
            AttemptSuperseded: a newer attempt owns the run.
        """
        path = checkpoint_name(position.step, self._dir.attempt)
        key = run_key(self._run_id, path)
        local = self._dir.checkpoint(position.step)
        with raise_storage_full(local):
            if self._store.exists(f"{key}/{MANIFEST}"):
                own = self._own(read_saved(self._store, key))
                return lambda: own
            shutil.rmtree(local, ignore_errors=True)
            local.mkdir(parents=True)
            finish_write = begin_write(local)

        self._own_keys.add(key)

        def finish() -> Saved:
            try:
                return self._complete(position, key, local, finish_write)
            except BaseException:
                self._own_keys.discard(key)
                raise

        return finish

    def _complete(
        self, position: Position, key: str, local: Path, finish_write: Callable[[], None]
    ) -> Saved:
        with raise_storage_full(local):
            finish_write()
            self._drop_older(local)
            manifest = self._manifest(position, self._store_files(key, local))
            data = manifest.model_dump_json(indent=1).encode()
            self._still_current()
            is_ours = self._store.put_if_absent(f"{key}/{MANIFEST}", data)
        # Our own is not read back: it is complete even if the store is unavailable just now.
        saved = _saved(key, manifest, data) if is_ours else read_saved(self._store, key)
        self._delete_local(saved.path)
        remove_earlier_copies(self._dir, position.step)
        return saved

    def _drop_older(self, local: Path) -> None:
        """Delete older local checkpoints that could not be stored: only the newest is kept."""
        for other in self._dir.run_dir.glob(checkpoint_name("*", self._dir.attempt)):
            if other != local:
                self._delete_local(other.relative_to(self._dir.run_dir).as_posix())

    def _delete_local(self, path: str) -> None:
        """Delete the local copy of a checkpoint that is complete in the store."""
        local = self._dir.run_dir / path
        shutil.rmtree(local, ignore_errors=True)
        with suppress(OSError):
            local.parent.rmdir()

    def prune(self, keep_last: int) -> Iterator[str]:
        """Delete all but the newest complete checkpoints, and incomplete older ones.

        The newest qualified one stays: until a newer one has passed its trial, it is the point of
        recovery. A refused one counts for nothing and stays while it is the newest.

        The manifest is deleted first, so an interrupted deletion leaves nothing that looks
        complete. The path is yielded right then; the next step of the iteration deletes the rest.
        A directory without a manifest is yielded too: its deletion may not have been reported.

        Raises:
            StoreError: the store does not answer.
            AttemptSuperseded: a newer attempt owns the run.
        """
        incomplete = [self._path(key) for key in sorted(self._incomplete())]
        for path in (*incomplete, *map(self._path, self._superfluous(keep_last))):
            self._still_current()
            key = run_key(self._run_id, path)
            self._own_keys.discard(key)
            self._store.delete_prefix(f"{key}/{MANIFEST}")
            yield path
            self._store.delete_prefix(key)
            self._delete_local(path)

    def _superfluous(self, keep_last: int) -> Iterator[str]:
        """Yield the keys of complete checkpoints that retention deletes, oldest first."""
        points = stored_checkpoints(self._store, self._run_id)
        sound = [point for point in points if not point.is_refused]
        qualified = [point for point in points if point.is_qualified]
        needed = {*sound[-keep_last:], *qualified[-1:], *points[-1:]}
        yield from (point.key for point in points if point not in needed)

    def complete(self) -> tuple[str, ...]:
        """Return the paths in the run of its complete checkpoints, oldest attempt and step first.

        Raises:
            StoreError: the store does not answer.
        """
        return tuple(map(self._path, complete_checkpoints(self._store, self._run_id)))

    def _path(self, key: str) -> str:
        return key.removeprefix(run_key(self._run_id) + "/")

    def _incomplete(self) -> set[str]:
        """Keys of directories without a manifest that no attempt will complete any more."""
        directories = _directories(self._store, self._run_id)
        return {
            key
            for key, directory in directories.items()
            if not directory.is_complete
            and directory.attempt <= self._dir.attempt
            and key not in self._own_keys
        }

    def _own(self, saved: Saved) -> Saved:
        if saved.manifest.config_hash != self._config_hash:
            raise CheckpointError(
                f"{saved.key} was saved under another configuration: start a new attempt instead of"
                " repeating one"
            )
        return saved

    def _store_files(self, key: str, local: Path) -> tuple[ManifestFile, ...]:
        """Store the files of a checkpoint, several at once, and read them for their digests beside.

        The first failure is raised once the transfers in flight have ended.
        """
        paths = sorted(path for path in local.rglob("*") if path.is_file())
        names = [path.relative_to(local).as_posix() for path in paths]
        with (
            ThreadPoolExecutor(FILES_AT_ONCE) as readers,
            ThreadPoolExecutor(FILES_AT_ONCE) as pool,
        ):
            digests = [readers.submit(_sha256, path) for path in paths]
            transfers: list[Future[None]] = [
                pool.submit(self._store.put_file, f"{key}/{name}", path)
                for name, path in zip(names, paths, strict=True)
            ]
            tasks: list[Future[Any]] = [*digests, *transfers]
            done, waiting = wait(tasks, return_when=FIRST_EXCEPTION)
            for future in waiting:
                future.cancel()
            for future in done:
                future.result()
        return tuple(
            ManifestFile(path=name, size_bytes=path.stat().st_size, sha256=digest.result())
            for name, path, digest in zip(names, paths, digests, strict=True)
        )

    def _manifest(self, position: Position, files: tuple[ManifestFile, ...]) -> Manifest:
        return Manifest(
            run_id=self._run_id,
            step=position.step,
            attempt=self._dir.attempt,
            config_hash=self._config_hash,
            parent=self._parent,
            final=position.final,
            created_at=datetime.now(UTC),
            files=files,
            sampler=dict(position.sampler),
            buffer=dict(position.buffer),
            evaluated_step=position.evaluated_step,
            ran_s=round(position.ran_s, 3),
        )


def complete_checkpoints(store: BlobStore, run_id: str) -> tuple[str, ...]:
    """Return the keys of a run's complete checkpoints, oldest attempt and step first.

    A later attempt's step is the truth even where an earlier one, perhaps cut off from the
    service, got further: it must neither be resumed from nor push out what the later one saved.
    """
    return tuple(point.key for point in stored_checkpoints(store, run_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint's directory in the store, as far as the names of its files tell."""

    key: str
    step: int
    attempt: int
    is_complete: bool
    is_qualified: bool
    is_refused: bool


def stored_checkpoints(store: BlobStore, run_id: str) -> tuple[StoredCheckpoint, ...]:
    """Return a run's complete checkpoints, oldest attempt and step first.

    Raises:
        StoreError: the store does not answer.
    """
    complete = [each for each in _directories(store, run_id).values() if each.is_complete]
    return tuple(sorted(complete, key=lambda each: (each.attempt, each.step)))


def _directories(store: BlobStore, run_id: str) -> dict[str, StoredCheckpoint]:
    """All checkpoint directories of a run in the store, complete or not, by key."""
    names: dict[tuple[str, str, str], set[str]] = {}
    for match in filter(None, map(_FILE.match, store.list(run_key(run_id, CHECKPOINTS)))):
        key, step, attempt, name = match.groups()
        names.setdefault((key, step, attempt), set()).add(name)
    return {
        key: StoredCheckpoint(
            key=key,
            step=int(step),
            attempt=int(attempt),
            is_complete=MANIFEST in files,
            is_qualified=QUALIFIED in files,
            is_refused=REFUSED in files,
        )
        for (key, step, attempt), files in names.items()
    }


def find_latest(store: BlobStore, run_id: str) -> str | None:
    """Return the key of a run's newest complete checkpoint that is not refused, or None."""
    points = [point for point in stored_checkpoints(store, run_id) if not point.is_refused]
    return points[-1].key if points else None


def read_saved(store: BlobStore, key: str, manifests: Mapping[str, str] | None = None) -> Saved:
    """Read the manifest of the checkpoint at `key`.

    `manifests` has the digests that it may have, by key; None compares nothing.

    Raises:
        CheckpointError: there is none, it is no manifest, or not the one that was saved.
        StoreError: the store does not answer.
    """
    try:
        data = store.get(f"{key}/{MANIFEST}")
        _compare(key, data, manifests)
        manifest = Manifest.model_validate_json(data)
    except BlobMissing as error:
        raise CheckpointError(f"{key} is not a complete checkpoint: no {MANIFEST}") from error
    except ValidationError as error:
        raise CheckpointError(f"{key}/{MANIFEST} cannot be read: {error}") from error
    return _saved(key, manifest, data)


def _compare(key: str, data: bytes, manifests: Mapping[str, str] | None) -> None:
    """Compare a manifest with its digest before it is parsed: the store has many writers."""
    if manifests is None:
        return
    if key not in manifests:
        raise CheckpointError(f"{key} is no checkpoint that the service knows")
    if hashlib.sha256(data).hexdigest() != manifests[key]:
        raise CheckpointError(
            f"{key}/{MANIFEST} is not the one that was saved: somebody has replaced it in the store"
        )


def _saved(key: str, manifest: Manifest, data: bytes) -> Saved:
    return Saved(
        key=key,
        path=key[key.rindex(f"{CHECKPOINTS}/") :],
        manifest=manifest,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
    )


def fetch(
    store: BlobStore,
    key: str,
    directory: Path,
    *,
    only: str = "",
    manifests: Mapping[str, str] | None = None,
) -> Saved:
    """Fetch a checkpoint into an empty `directory` and verify every file.

    `only` fetches just the files whose path starts with it; `manifests` as for `read_saved`.

    Raises:
        CheckpointError: no manifest or another one, a file is missing, or its size or hash differs.
        StoreError: the store does not answer.
        StorageFull: no space.
    """
    saved = read_saved(store, key, manifests)
    shutil.rmtree(directory, ignore_errors=True)
    for file in saved.manifest.files:
        if not file.path.startswith(only):
            continue
        target = directory / file.path
        with raise_storage_full(directory):
            try:
                store.get_file(f"{key}/{file.path}", target)
            except BlobMissing as error:
                raise CheckpointError(f"{key} lacks {file.path}") from error
        if target.stat().st_size != file.size_bytes or _sha256(target) != file.sha256:
            raise CheckpointError(f"{key}/{file.path} does not match its manifest")
    return saved


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
