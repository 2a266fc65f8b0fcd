"""Weights through a file: in shared memory between processes of a machine, or on a shared disk."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainer.leftovers import own_path
from trainer.weights.manifest import Manifest, demand_same

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's name for shared memory
PREFIX = "hillclimb-weights-"
_STEM = "version-"


class WritesWeights(Protocol):
    """The learner's side."""

    async def write_weights(self, path: Path) -> Manifest:
        """Write every tensor by Hugging Face name, tied heads too; return what was written."""
        ...


class WritesAdapter(Protocol):
    """A learner that trains an adapter."""

    async def write_adapter(self, directory: Path) -> Manifest:
        """Write the adapter in peft's form; return what was written."""
        ...


class AdapterOf:
    """`WritesWeights` that writes the adapter alone: megabytes, whatever the size of the model."""

    def __init__(self, learner: WritesAdapter) -> None:
        self._learner = learner

    async def write_weights(self, path: Path) -> Manifest:
        """Make `path` a directory with the adapter; return what was written."""
        return await self._learner.write_adapter(path)


@runtime_checkable
class TakesFile(Protocol):
    """An engine's side."""

    async def take_file(self, path: Path, version: int) -> Manifest:
        """Draw from the file's weights from now on; a directory is an adapter in peft's form.

        Returns what they turned out to be.

        Raises:
            EngineError: they were not taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """The weights of a version."""

    path: Path
    version: int


class FileSync:
    """A `WeightSync` by one safetensors file, or one adapter, per sync."""

    def __init__(
        self,
        learner: WritesWeights,
        engines: Sequence[TakesFile],
        directory: Path,
        *,
        keeps: bool = False,
    ) -> None:
        """`directory` is this sync's own: what another process left in it is deleted.

        With `keeps` the newest file stays until the next one is there: an engine that has to start
        again finds in it what it drew with (`newest_weights`).
        """
        self._learner = learner
        self._engines = tuple(engines)
        self._directory = directory
        self._keeps = keeps
        self.clear()

    async def sync(self) -> None:
        """Write, let all engines take; see `WeightSync.sync`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        written = self._directory / "weights.part"
        try:
            sent = await self._learner.write_weights(written)
            path = written.replace(self._directory / f"{_STEM}{sent.version}")
            taking = (engine.take_file(path, sent.version) for engine in self._engines)
            demand_same(sent, await asyncio.gather(*taking))
        finally:
            if not self._keeps:
                self.clear()
        for older in self._directory.glob(f"{_STEM}*"):
            if older != path:
                _delete(older)

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def newest_weights(directory: Path) -> WeightsFile | None:
    """Return the newest whole file that a sync left in its directory."""
    found = [
        WeightsFile(path, int(path.name.removeprefix(_STEM)))
        for path in directory.glob(f"{_STEM}*")
    ]
    return max(found, key=lambda each: each.version, default=None)


def shared_directory() -> Path:
    """Where weights of this process pass through: shared memory where there is some, else a disk.

    What processes that were killed left there is deleted.
    """
    root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return own_path(root, PREFIX)
