"""Sends an attempt's metrics to an experiment tracker; its failures never affect the run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    EVENTS,
    EvalCompleted,
    Event,
    StepCompleted,
    TrainerEnded,
    TrainerStarted,
)
from trainer.attempt.sinks.tail import Tail

MAX_BYTES, MAX_EVENTS = 4_000_000, 1000
_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Port to one run of an experiment tracker; its methods may raise any error."""

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts to the run's config."""
        ...

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Add the values of one global step; steps never decrease."""
        ...

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Set the run's end and upload all remaining values."""
        ...


class Tracking:
    """Follows `events.jsonl` in a thread of its own, from the first event.

    `open_tracker` is called in that thread. The first failure is logged and ends the tracking; the
    events themselves are in the journal.
    """

    def __init__(self, events: Path, open_tracker: Callable[[], Tracker]) -> None:
        self._tail = Tail(events)
        self._open_tracker = open_tracker
        self._has_all = False
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Signal that there are new events."""
        self._news.set()

    def close(self, timeout_s: float) -> bool:
        """Send the remaining events within `timeout_s`; True if the tracker has all."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._news.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._has_all

    def _work(self) -> None:
        try:
            self._carry(self._open_tracker())
        except Exception as error:  # noqa: BLE001 - the sink edge: training goes on whatever fails
            _log.warning("tracking of this attempt stopped: %s: %s", _kind(error), error)

    def _carry(self, tracker: Tracker) -> None:
        ended: TrainerEnded | None = None
        while True:
            is_closing = self._closing.is_set()
            lines = self._tail.lines(max_bytes=MAX_BYTES, max_lines=MAX_EVENTS)
            for event in map(EVENTS.validate_json, lines):
                send_event(tracker, event)
                ended = event if isinstance(event, TrainerEnded) else ended
            self._tail.advance(lines)
            if not lines and is_closing:
                break
            if not lines:
                self._news.wait()
                self._news.clear()
        summary = {"end_reason": ended.reason.value, "end_message": ended.message} if ended else {}
        succeeded = ended is not None and ended.reason is ReasonCode.COMPLETED
        tracker.finish(summary, succeeded=succeeded)
        self._has_all = True


def send_event(tracker: Tracker, event: Event) -> None:
    """Send a tracker the metrics of one event.

    Their names are the event's, except that an evaluation's begin with `eval_{decoding}/` instead
    of `eval/`, so that two decodings never share a curve.
    """
    if isinstance(event, TrainerStarted):
        facts = event.model_dump(mode="json", exclude={"type", "at", "trainer_seq", "step"})
        tracker.describe({"trainer": facts})
    elif isinstance(event, StepCompleted):
        tracker.log(event.metrics, step=event.step)
    elif isinstance(event, EvalCompleted):
        prefix = f"eval_{event.decoding}/"
        named = {prefix + name.removeprefix("eval/"): v for name, v in event.metrics.items()}
        tracker.log({**named, f"{prefix}duration_s": event.duration_s}, step=event.step)


def _kind(error: Exception) -> str:
    return type(error).__name__
