"""Sends an attempt's metrics to an experiment tracker; its failures never affect the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    EvalCompleted,
    Event,
    StepCompleted,
    TrackingStarted,
    TrainerEnded,
    TrainerStarted,
)
from trainer.attempt.sinks.follower import Follower


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """An attempt's run at a tracker: its name, and its address unless it is in files."""

    tracker: Literal["wandb", "mlflow", "tensorboard"]
    name: str
    url: str | None = None


class Tracker(Protocol):
    """Port to one run of an experiment tracker; its methods may raise any error."""

    @property
    def run(self) -> TrackedRun:
        """The run that it writes."""
        ...

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts to the run's config."""
        ...

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        """Add the values of one global step, measured at a time; steps never decrease."""
        ...

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Set the run's end and upload all remaining values."""
        ...


class FileKeeper(Protocol):
    """Port to whoever keeps the files that a tracker writes; its methods may raise any error."""

    def store_if_due(self) -> None:
        """Keep the files that have grown, now and then."""
        ...

    def store_now(self) -> None:
        """Keep the files that have grown."""
        ...


class Tracking(Follower):
    """Sends a tracker every figure of `events.jsonl`; `open_tracker` is called in its thread.

    `announce` emits the event that says where the run is, once the trainer has started. `files`
    stores the tracker's files, if it writes any.
    """

    def __init__(
        self,
        events: Path,
        open_tracker: Callable[[], Tracker],
        *,
        announce: Callable[[Event], object] = lambda _: None,
        files: FileKeeper | None = None,
    ) -> None:
        super().__init__(events, lambda: _Figures(open_tracker(), announce, files), name="tracking")


class _Figures:
    """Hands a tracker the figures of events, and the end."""

    def __init__(
        self, tracker: Tracker, announce: Callable[[Event], object], files: FileKeeper | None
    ) -> None:
        self._tracker = tracker
        self._announce = announce
        self._files = files
        self._end: TrainerEnded | None = None

    def take(self, event: Event) -> None:
        """Send the figures of one event."""
        send_event(self._tracker, event)
        self._end = event if isinstance(event, TrainerEnded) else self._end
        if isinstance(event, TrainerStarted):
            run = self._tracker.run
            self._announce(
                TrackingStarted(step=event.step, tracker=run.tracker, name=run.name, url=run.url)
            )

    def rest(self) -> None:
        """Store the tracker's files, now and then."""
        if self._files is not None:
            self._files.store_if_due()

    def finish(self) -> None:
        """Set the run's end, and store the last of its files."""
        end = self._end
        summary = {"end_reason": end.reason.value, "end_message": end.message} if end else {}
        succeeded = end is not None and end.reason is ReasonCode.COMPLETED
        try:
            self._tracker.finish(summary, succeeded=succeeded)
        finally:
            if self._files is not None:
                self._files.store_now()


def send_event(tracker: Tracker, event: Event) -> None:
    """Send a tracker the metrics of one event.

    Their names are the event's, except that an evaluation's begin with `eval_{decoding}/` instead
    of `eval/`, so that two decodings never share a curve.
    """
    if isinstance(event, TrainerStarted):
        facts = event.model_dump(mode="json", exclude={"type", "at", "trainer_seq", "step"})
        tracker.describe({"trainer": facts})
    elif isinstance(event, StepCompleted):
        tracker.log(event.metrics, step=event.step, at=event.at)
    elif isinstance(event, EvalCompleted):
        prefix = f"eval_{event.decoding}/"
        named = {prefix + name.removeprefix("eval/"): v for name, v in event.metrics.items()}
        named[f"{prefix}duration_s"] = event.duration_s
        tracker.log(named, step=event.step, at=event.at)
