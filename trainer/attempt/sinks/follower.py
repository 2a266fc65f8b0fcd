"""Follows an attempt's event file in a thread of its own, for a consumer of single events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hillclimb.protocol.events import EVENTS, Event
from trainer.attempt.sinks.tail import Tail

MAX_BYTES, MAX_EVENTS = 4_000_000, 1000
_log = logging.getLogger(__name__)


class EventConsumer(Protocol):
    """Takes the events of an attempt, one after another; its methods may raise any error."""

    def take(self, event: Event) -> None:
        """Take one event, the first one of the attempt first."""
        ...

    def rest(self) -> None:
        """Use a pause: all events so far were taken."""
        ...

    def finish(self) -> None:
        """Send what is left: all events were taken."""
        ...


class Follower:
    """A sink that hands a consumer every event of `events.jsonl`, from the first.

    `open_consumer` is called in the thread. The first failure is logged and ends the following; the
    events themselves are in the journal. `name` is that of what they feed.
    """

    def __init__(
        self, events: Path, open_consumer: Callable[[], EventConsumer], *, name: str
    ) -> None:
        self._tail = Tail(events)
        self._open_consumer = open_consumer
        self._name = name
        self._has_all = False
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Signal that there are new events."""
        self._news.set()

    def close(self, timeout_s: float) -> bool:
        """Hand over the remaining events within `timeout_s`; True if the consumer has all."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._news.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._has_all

    def _work(self) -> None:
        try:
            self._carry(self._open_consumer())
        except Exception as error:  # noqa: BLE001 - the sink edge: training goes on whatever fails
            _log.warning("%s of this attempt stopped: %s: %s", self._name, _kind(error), error)

    def _carry(self, consumer: EventConsumer) -> None:
        while True:
            is_closing = self._closing.is_set()
            lines = self._tail.lines(max_bytes=MAX_BYTES, max_lines=MAX_EVENTS)
            for event in map(EVENTS.validate_json, lines):
                consumer.take(event)
            self._tail.advance(lines)
            if not lines and is_closing:
                break
            if not lines:
                consumer.rest()
                self._news.wait()
                self._news.clear()
        consumer.finish()
        self._has_all = True


def _kind(error: Exception) -> str:
    return type(error).__name__
