"""Weight sync through a file: in the machine's shared memory, or on a shared disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainer.weights.digests import WeightDigests, assert_same_weights

_STEM = "version-"


class WritesWeights(Protocol):
    """The learner's side of the transfer."""

    async def write_weights(self, path: Path) -> WeightDigests:
        """Write every tensor by Hugging Face name, tied heads too; return the digests."""
        ...


class WritesAdapter(Protocol):
    """A learner that trains an adapter."""

    async def write_adapter(self, directory: Path) -> WeightDigests:
        """Write the adapter in peft's form; return the digests."""
        ...


class AdapterOf:
    """A `WritesWeights` that writes the adapter alone: megabytes for a model of any size."""

    def __init__(self, learner: WritesAdapter) -> None:
        self._learner = learner

    async def write_weights(self, path: Path) -> WeightDigests:
        """Make `path` a directory with the adapter; return the digests."""
        return await self._learner.write_adapter(path)


@runtime_checkable
class LoadsFile(Protocol):
    """An engine's side of the transfer."""

    async def load_weights_file(self, path: Path, version: int) -> WeightDigests:
        """Sample from the file's weights from now on; a directory is an adapter in peft's form.

        Returns the digests of the loaded weights.

        Raises:
            EngineError: they were not loaded.
        """
        ...


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """File with the weights of one version."""

    path: Path
    version: int


class FileSystemSync:
    """A `WeightSync` by one safetensors file, or one adapter, per sync."""

    def __init__(
        self,
        learner: WritesWeights,
        engines: Sequence[LoadsFile],
        directory: Path,
        *,
        keep_newest: bool = False,
    ) -> None:
        """`directory` is this sync's own: files that another process left in it are deleted.

        With `keep_newest` the newest file stays until the next one is written: a restarted engine
        loads its weights from there (`newest_weights`).
        """
        self._learner = learner
        self._engines = tuple(engines)
        self._directory = directory
        self._keep_newest = keep_newest
        self.clear()

    async def sync(self) -> None:
        """Write one file and let all engines load it; see `WeightSync.sync`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        written = self._directory / "weights.part"
        try:
            sent = await self._learner.write_weights(written)
            path = written.replace(self._directory / f"{_STEM}{sent.version}")
            loading = (engine.load_weights_file(path, sent.version) for engine in self._engines)
            assert_same_weights(sent, await asyncio.gather(*loading))
        finally:
            if not self._keep_newest:
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
    files = [
        WeightsFile(path, int(path.name.removeprefix(_STEM)))
        for path in directory.glob(f"{_STEM}*")
    ]
    return max(files, key=lambda each: each.version, default=None)
