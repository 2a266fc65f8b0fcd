"""The server's state directory, which outlives the process.

    models/ID/model.json                    settings of a model
    models/ID/weights/NAME/                 state.safetensors, the adapter, kept.json
    models/ID/sampler_weights/NAME/         the adapter, kept.json
    samplers/ID.json                        weights of a sampling session
    lock                                    locked by the one server that writes here

A checkpoint is complete when it has `kept.json`, which is written last.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.tinker_server.errors import RequestRefused, StateInUse, Unknown
from trainer.tinker_server.wire import Lora

WEIGHTS, SAMPLER_WEIGHTS = "weights", "sampler_weights"
STATE = "state.safetensors"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,199}")
_PATH = re.compile(r"tinker://([^/]+)/(weights|sampler_weights)/([^/]+)")
_INFO_FILE = "kept.json"
_T = TypeVar("_T", bound=BaseModel)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class ModelRecord(_Record):
    """`model.json`."""

    model_id: str
    base_model: str
    lora: Lora
    created_at: datetime
    user_metadata: dict[str, str] | None = None


class SamplerRecord(_Record):
    """The weights of a sampling session."""

    sampler_id: str
    base_model: str
    model_path: str | None = None
    """The `tinker://` path; null is the base model alone."""


class CheckpointInfo(_Record):
    """`kept.json`."""

    created_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SavedState:
    """A checkpoint saved under a name."""

    model_id: str
    kind: str
    name: str
    directory: Path
    info: CheckpointInfo

    @property
    def path(self) -> str:
        """The `tinker://` path for clients."""
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(each.stat().st_size for each in self.directory.iterdir())


class Disk:
    """Reads and writes the directory; clients' names are checked before they become paths."""

    def __init__(
        self, root: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Create the directory, and delete what an earlier server left half written.

        Raises:
            StateInUse: another server has it.
        """
        self._root = root
        self._clock = clock
        (root / "samplers").mkdir(parents=True, exist_ok=True)
        (root / "models").mkdir(exist_ok=True)
        self._lock = _locked(root / "lock")
        for half in root.glob("models/*/*/*.part"):
            shutil.rmtree(half)
        self.sweep()

    def close(self) -> None:
        """Release the directory's lock."""
        self._lock.close()

    def sweep(self) -> None:
        """Delete expired checkpoints, and sampling sessions without weights."""
        for path in self._root.glob("models/*/model.json"):
            self.checkpoints(path.parent.name)
        for path in self._root.glob("samplers/*.json"):
            record = self._read(path, SamplerRecord, "sampler")
            if record.model_path is not None and not self._exists(record.model_path):
                path.unlink(missing_ok=True)

    def add_model(self, record: ModelRecord) -> None:
        """Write a model's record."""
        directory = self._model(record.model_id)
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory / "model.json", record)

    def model(self, model_id: str) -> ModelRecord:
        """Return a model's record.

        Raises:
            Unknown: there is none of that id.
        """
        return self._read(self._model(model_id) / "model.json", ModelRecord, f"model {model_id}")

    def models(self) -> list[ModelRecord]:
        """Return all models, the oldest first."""
        records = [
            self._read(path, ModelRecord, "model")
            for path in self._root.glob("models/*/model.json")
        ]
        return sorted(records, key=lambda each: each.created_at)

    def of_session(self, session_id: str) -> tuple[list[str], list[str]]:
        """Return the ids of a session's models, and of its sampling sessions."""
        prefix = f"{_checked(session_id)}:"
        models = [path.parent.name for path in self._root.glob("models/*/model.json")]
        samplers = [path.stem for path in self._root.glob("samplers/*.json")]
        return (
            sorted(each for each in models if each.startswith(prefix)),
            sorted(each for each in samplers if each.startswith(prefix)),
        )

    def add_sampler(self, record: SamplerRecord) -> None:
        """Write a sampling session's record."""
        _write(self._sampler(record.sampler_id), record)

    def sampler(self, sampler_id: str) -> SamplerRecord:
        """Return a sampling session's record.

        Raises:
            Unknown: there is none of that id.
        """
        return self._read(self._sampler(sampler_id), SamplerRecord, f"sampler {sampler_id}")

    def save(
        self,
        model_id: str,
        kind: str,
        name: str,
        write: Callable[[Path], None],
        *,
        ttl_s: int | None = None,
        overwrite: bool = False,
    ) -> SavedState:
        """Save a checkpoint, whose directory `write` fills, under a name.

        Raises:
            RequestRefused: the name is in use.
        """
        target = self._model(model_id) / kind / _checked(name)
        if (target / _INFO_FILE).is_file() and not overwrite:
            raise RequestRefused(f"{kind}/{name} exists already: choose another name")
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        info = CheckpointInfo(created_at=self._clock(), expires_at=self._expiry(ttl_s))
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        # Last: a reader finds a complete checkpoint or none.
        _write(target / _INFO_FILE, info)
        return SavedState(model_id, kind, name, target, info)

    def find(self, path: str) -> SavedState:
        """Return the checkpoint of a `tinker://` path.

        Raises:
            Unknown: it does not exist.
        """
        match = _PATH.fullmatch(path)
        if match is None:
            raise RequestRefused(
                f"{path!r} is none of tinker://MODEL/weights/NAME and .../sampler_weights"
            )
        model_id, kind, name = match.groups()
        directory = self._model(model_id) / kind / _checked(name)
        try:
            saved = self._saved(directory)
        except Unknown:
            saved = None
        if saved is None or self._is_expired(saved):
            raise Unknown(
                f"nothing is kept as {path}: it never was, was deleted, or its time is over"
            )
        return saved

    def checkpoints(self, model_id: str) -> list[SavedState]:
        """Return a model's checkpoints, the oldest first; expired ones are deleted."""
        saved = [each for each in self._all_of(model_id) if not self._is_expired(each)]
        return sorted(saved, key=lambda each: each.info.created_at)

    def all_checkpoints(self) -> list[SavedState]:
        """Return the checkpoints of all models, the oldest first."""
        models = [path.parent.name for path in self._root.glob("models/*/model.json")]
        saved = [each for model_id in models for each in self.checkpoints(model_id)]
        return sorted(saved, key=lambda each: each.info.created_at)

    def prolong(self, checkpoint: SavedState, ttl_s: int) -> None:
        """Let an expiring checkpoint last for `ttl_s` from now, once half of it is over."""
        soon, expires = self._clock() + timedelta(seconds=ttl_s / 2), checkpoint.info.expires_at
        if expires is not None and expires < soon:
            self.set_ttl(checkpoint, ttl_s)

    def set_ttl(self, checkpoint: SavedState, ttl_s: int | None) -> None:
        """Let a checkpoint last for `ttl_s` from now; None: for good."""
        info = checkpoint.info.model_copy(update={"expires_at": self._expiry(ttl_s)})
        _write(checkpoint.directory / _INFO_FILE, info)

    def delete(self, checkpoint: SavedState) -> None:
        """Delete a checkpoint."""
        (checkpoint.directory / _INFO_FILE).unlink(missing_ok=True)
        shutil.rmtree(checkpoint.directory, ignore_errors=True)

    def _exists(self, path: str) -> bool:
        try:
            self.find(path)
        except RequestRefused:
            return False
        return True

    def _all_of(self, model_id: str) -> Iterator[SavedState]:
        for path in self._model(model_id).glob(f"*/*/{_INFO_FILE}"):
            try:
                yield self._saved(path.parent)
            except Unknown:
                continue  # Another request has deleted it meanwhile.

    def _saved(self, directory: Path) -> SavedState:
        model_id, kind, name = directory.parts[-3:]
        info = self._read(directory / _INFO_FILE, CheckpointInfo, name)
        return SavedState(model_id, kind, name, directory, info)

    def _expiry(self, ttl_s: int | None) -> datetime | None:
        return None if ttl_s is None else self._clock() + timedelta(seconds=ttl_s)

    def _is_expired(self, checkpoint: SavedState) -> bool:
        """Tell whether a checkpoint's time is over; it is deleted then."""
        expires = checkpoint.info.expires_at
        if expires is None or expires > self._clock():
            return False
        self.delete(checkpoint)
        return True

    def _model(self, model_id: str) -> Path:
        return self._root / "models" / _checked(model_id)

    def _sampler(self, sampler_id: str) -> Path:
        return self._root / "samplers" / f"{_checked(sampler_id)}.json"

    def _read(self, path: Path, kind: type[_T], what: str) -> _T:
        try:
            return kind.model_validate_json(path.read_bytes())
        except FileNotFoundError as missing:
            raise Unknown(f"this server has no {what}") from missing
        except (OSError, ValidationError) as fault:
            raise RequestRefused(f"the record of {what} cannot be read: {fault}") from fault


def _locked(path: Path) -> IO[bytes]:
    """Return an exclusively locked file; the lock ends with it or with the process.

    Raises:
        StateInUse: one has.
    """
    handle = path.open("ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise StateInUse(
            f"another Tinker server writes to {path.parent}: stop it, or give another --state-dir"
        ) from error
    return handle


def _checked(name: str) -> str:
    if not _ID.fullmatch(name) or name.endswith(".part"):
        raise RequestRefused(f"{name!r} is no name: letters, digits and : . _ - are allowed")
    return name


def _write(path: Path, record: BaseModel) -> None:
    """Write a record atomically."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(record.model_dump_json(indent=1))
    part.replace(path)
