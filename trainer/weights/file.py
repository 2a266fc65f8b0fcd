"""Weights through a file: in shared memory between processes of a machine, or on a shared disk."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's name for shared memory
NAME = "hillclimb"


class WritesWeights(Protocol):
    """The learner's side."""

    async def write_weights(self, path: Path) -> int:
        """Write every tensor by Hugging Face name, tied heads too; return the version."""
        ...


@runtime_checkable
class TakesFile(Protocol):
    """An engine's side."""

    async def take_file(self, path: Path, version: int) -> None:
        """Draw from the file's weights from now on.

        Raises:
            EngineError: they were not taken.
        """
        ...


class FileSync:
    """A `WeightSync` by one safetensors file per sync, deleted when every engine has taken it."""

    def __init__(
        self, learner: WritesWeights, engines: Sequence[TakesFile], directory: Path
    ) -> None:
        """`directory` is this sync's own: what another process left in it is deleted."""
        self._learner = learner
        self._engines = tuple(engines)
        self._directory = directory
        shutil.rmtree(directory, ignore_errors=True)

    async def sync(self) -> None:
        """Write, let all engines take, delete; see `WeightSync.sync`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "weights.safetensors"
        try:
            version = await self._learner.write_weights(path)
            await asyncio.gather(*(engine.take_file(path, version) for engine in self._engines))
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


def shared_directory(run: str) -> Path:
    """Where a run's weights pass through: shared memory where there is some, else a disk.

    The name is the run's, so that an attempt clears what a killed one left.
    """
    root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return root / NAME / run
