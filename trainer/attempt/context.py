"""What every kind of run has in common: what its process is given, and what it does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainer.contract.rundir import AttemptDir
from trainer.contract.spec import RunSpec
from trainer.errors import StepTimeout
from trainer.sinks.journal import Journal
from trainer.stopping import Stop
from trainer.stores.base import BlobStore
from trainer.timing import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a process was started with."""

    spec: RunSpec
    dir: AttemptDir
    store: BlobStore
    journal: Journal
    stop: Stop
    clock: Clock
    resume_from: str | None
    """Blob key of a complete checkpoint, of this run or of another."""
    on_blocked: Callable[[StepTimeout], None] = lambda _: None
    """See `Watchdog`."""


class Work(Protocol):
    """What an attempt does; made once per process."""

    step: int
    """The last step completed."""

    async def train(self) -> None:
        """Do all of it: train, or what the kind of run does instead.

        Raises:
            StopRequested: asked to stop; what there was to keep is kept.
            TrainerError: it cannot go on.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; may be called at any time."""
        ...

    def summary(self) -> str:
        """Say in a few words what was done, once it is."""
        ...
