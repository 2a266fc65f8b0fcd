"""The context of an attempt, which every kind of job is built from, and the `Work` protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.events import Event
from hillclimb.protocol.rundir import AttemptDir, TagPart, run_key, run_tag
from hillclimb.spec.run import RunSpec
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.startup import StartupPhases
from trainer.attempt.stop_signal import StopSignal
from trainer.attempt.timing import Clock
from trainer.errors import StepTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """The spec, directory, blob store, journal, stop signal and clock of one attempt."""

    spec: RunSpec
    dir: AttemptDir
    store: BlobStore
    journal: EventJournal
    stop: StopSignal
    clock: Clock
    resume_from: str | None
    """Blob key of the complete checkpoint to resume from, of this run or another."""
    manifests: Mapping[str, str] | None = None
    """SHA-256 (hex) of the manifests of the checkpoints that may be opened, by blob key, as the
    service has them; None without a service: nothing is compared then."""
    on_blocked: Callable[[StepTimeout], None] = lambda _: None
    """Called from another thread when the event loop hangs; see `Watchdog`."""
    startup: StartupPhases = field(init=False, repr=False)
    """What the start of the attempt has done so far, in its journal."""

    def __post_init__(self) -> None:
        """Report the phases of the start in the attempt's own journal."""
        object.__setattr__(self, "startup", StartupPhases(self.emit))

    def emit(self, event: Event) -> None:
        """Write an event of the start whole: a stop that interrupts the start waits for it.

        Raises:
            OSError: the file cannot be written.
            StopRequested: a stop was requested meanwhile; the event is written.
        """
        with self.stop.defers():
            self.journal.emit(event)

    @property
    def run_id(self) -> str:
        """The run's id: the name of its directory."""
        return self.dir.run_dir.name

    def key(self, *parts: str) -> str:
        """Return a blob key under the run."""
        return run_key(self.run_id, *parts)

    def tag(self, part: TagPart = "rollouts") -> str:
        """Return the tag of the attempt's resources on platforms, such as instances."""
        return run_tag(self.run_id, self.dir.attempt, part)


class Work(Protocol):
    """The job of an attempt; built once per process."""

    step: int
    """The last step completed."""

    async def train(self) -> None:
        """Do the whole job: train, evaluate, probe, validate or preview.

        Raises:
            StopRequested: stopped on request; the completed part is saved.
            TrainerError: the job cannot go on.
        """
        ...

    async def close(self) -> None:
        """Release all resources; may be called at any time."""
        ...

    def summary(self) -> str:
        """Return the result in a few words, after `train`."""
        ...
