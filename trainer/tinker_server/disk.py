"""What a server keeps in its directory: it survives the process.

    models/ID/model.json                    what a model is made of
    models/ID/weights/NAME/                 state.safetensors, the adapter, kept.json
    models/ID/sampler_weights/NAME/         the adapter, kept.json
    samplers/ID.json                        what a sampling session draws from
    lock                                    held by the one server that may write here

A directory counts as kept when its `kept.json` is there, which is written last.
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

from trainer.tinker_server.errors import Refused, StateInUse, Unknown
from trainer.tinker_server.wire import Lora

WEIGHTS, SAMPLER_WEIGHTS = "weights", "sampler_weights"
STATE = "state.safetensors"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,199}")
_PATH = re.compile(r"tinker://([^/]+)/(weights|sampler_weights)/([^/]+)")
_KEPT = "kept.json"
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
    """What a sampling session draws from."""

    sampler_id: str
    base_model: str
    model_path: str | None = None
    """The `tinker://` path; null is the base model alone."""


class Kept(_Record):
    """`kept.json`."""

    created_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Something kept under a name."""

    model_id: str
    kind: str
    name: str
    directory: Path
    kept: Kept

    @property
    def path(self) -> str:
        """What clients call it."""
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(each.stat().st_size for each in self.directory.iterdir())


class Disk:
    """Reads and writes it; names from clients are checked before they become paths."""

    def __init__(
        self, root: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Make the directory, and clear away what a server before this one left half written.

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
        """Let another server have the directory."""
        self._lock.close()

    def sweep(self) -> None:
        """Delete what is past its time, and sampling sessions that have nothing to draw from."""
        for path in self._root.glob("models/*/model.json"):
            self.checkpoints(path.parent.name)
        for path in self._root.glob("samplers/*.json"):
            record = self._read(path, SamplerRecord, "sampler")
            if record.model_path is not None and not self._is_kept(record.model_path):
                path.unlink(missing_ok=True)

    def add_model(self, record: ModelRecord) -> None:
        """Write a model down."""
        directory = self._model(record.model_id)
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory / "model.json", record)

    def model(self, model_id: str) -> ModelRecord:
        """Return what a model is made of.

        Raises:
            Unknown: there is none of that id.
        """
        return self._read(self._model(model_id) / "model.json", ModelRecord, f"model {model_id}")

    def models(self) -> list[ModelRecord]:
        """Return all models, the oldest first."""
        found = [
            self._read(path, ModelRecord, "model")
            for path in self._root.glob("models/*/model.json")
        ]
        return sorted(found, key=lambda each: each.created_at)

    def add_sampler(self, record: SamplerRecord) -> None:
        """Write a sampling session down."""
        _write(self._sampler(record.sampler_id), record)

    def sampler(self, sampler_id: str) -> SamplerRecord:
        """Return what a sampling session draws from.

        Raises:
            Unknown: there is none of that id.
        """
        return self._read(self._sampler(sampler_id), SamplerRecord, f"sampler {sampler_id}")

    def keep(
        self,
        model_id: str,
        kind: str,
        name: str,
        write: Callable[[Path], None],
        *,
        ttl_s: int | None = None,
        overwrite: bool = False,
    ) -> Checkpoint:
        """Let `write` fill a directory and keep it under a name.

        Raises:
            Refused: something is kept under the name already.
        """
        target = self._model(model_id) / kind / _checked(name)
        if (target / _KEPT).is_file() and not overwrite:
            raise Refused(f"{kind}/{name} is there already: take another name")
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        now = self._clock()
        expires = now + timedelta(seconds=ttl_s) if ttl_s is not None else None
        kept = Kept(created_at=now, expires_at=expires)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        # Last, and under its own name: whoever looks finds all of it or nothing.
        _write(target / _KEPT, kept)
        return Checkpoint(model_id, kind, name, target, kept)

    def find(self, path: str) -> Checkpoint:
        """Return what is kept under a `tinker://` path.

        Raises:
            Unknown: nothing is, or no more.
        """
        match = _PATH.fullmatch(path)
        if match is None:
            raise Refused(
                f"{path!r} is none of tinker://MODEL/weights/NAME and .../sampler_weights"
            )
        model_id, kind, name = match.groups()
        for each in self.checkpoints(model_id):
            if (each.kind, each.name) == (kind, name):
                return each
        raise Unknown(f"nothing is kept as {path}: it never was, was deleted, or its time is over")

    def checkpoints(self, model_id: str) -> list[Checkpoint]:
        """Return what is kept of a model, the oldest first; what is past its time is deleted."""
        found = []
        for each in self._all_of(model_id):
            if each.kept.expires_at is not None and each.kept.expires_at <= self._clock():
                self.drop(each)
            else:
                found.append(each)
        return sorted(found, key=lambda each: each.kept.created_at)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Delete what is kept."""
        (checkpoint.directory / _KEPT).unlink(missing_ok=True)
        shutil.rmtree(checkpoint.directory, ignore_errors=True)

    def _is_kept(self, path: str) -> bool:
        try:
            self.find(path)
        except Refused:
            return False
        return True

    def _all_of(self, model_id: str) -> Iterator[Checkpoint]:
        for path in self._model(model_id).glob(f"*/*/{_KEPT}"):
            directory = path.parent
            try:
                kept = self._read(path, Kept, directory.name)
            except Unknown:
                continue  # Another request has deleted it meanwhile.
            yield Checkpoint(model_id, directory.parent.name, directory.name, directory, kept)

    def _model(self, model_id: str) -> Path:
        return self._root / "models" / _checked(model_id)

    def _sampler(self, sampler_id: str) -> Path:
        return self._root / "samplers" / f"{_checked(sampler_id)}.json"

    def _read(self, path: Path, kind: type[_T], what: str) -> _T:
        try:
            return kind.model_validate_json(path.read_bytes())
        except FileNotFoundError as missing:
            raise Unknown(f"there is no {what} here") from missing
        except (OSError, ValidationError) as fault:
            raise Refused(f"what is kept of {what} cannot be read: {fault}") from fault


def _locked(path: Path) -> IO[bytes]:
    """Return an open file that no other process has open so, until it is closed or we end.

    Raises:
        StateInUse: one has.
    """
    handle = path.open("ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as held:
        handle.close()
        raise StateInUse(
            f"another Tinker server writes to {path.parent}: stop it, or give another --state-dir"
        ) from held
    return handle


def _checked(name: str) -> str:
    if not _ID.fullmatch(name) or name.endswith(".part"):
        raise Refused(f"{name!r} is no name: letters, digits and : . _ - are allowed")
    return name


def _write(path: Path, record: BaseModel) -> None:
    """Write whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(record.model_dump_json(indent=1))
    part.replace(path)
