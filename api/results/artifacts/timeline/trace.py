"""Trace: slices and counters on named tracks, written in the Trace Event Format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Track:
    """A row of a trace (`thread`) within a group of rows (`process`), both by number and name."""

    process: int
    process_name: str
    thread: int
    thread_name: str


@dataclass(slots=True)
class Trace:
    """Collects slices and counters; times are seconds since the epoch."""

    _slices: list[tuple[Track, str, float, float, str, Json]] = field(default_factory=list)
    _counts: list[tuple[Track, str, float, Json]] = field(default_factory=list)

    def slice(
        self,
        track: Track,
        name: str,
        begin: float,
        end: float,
        *,
        category: str,
        args: Json | None = None,
    ) -> None:
        """Add a slice; one that lies within another on its track is drawn below it."""
        self._slices.append((track, name, begin, max(begin, end), category, args or {}))

    def count(self, track: Track, name: str, at: float, value: int) -> None:
        """Set a counter from a moment on."""
        self._counts.append((track, name, at, {name: value}))

    def origin(self) -> float | None:
        """Return the earliest time; None for an empty trace."""
        times = [each[2] for each in self._slices] + [each[2] for each in self._counts]
        return min(times, default=None)

    def events(self) -> list[Json]:
        """Return names of tracks, slices and counters, in microseconds since the earliest."""
        origin = self.origin() or 0.0
        tracks = {each[0] for each in self._slices} | {each[0] for each in self._counts}
        events = list(_names(sorted(tracks, key=lambda each: (each.process, each.thread))))
        for track, name, begin, end, category, args in self._slices:
            place = {"ph": "X", "pid": track.process, "tid": track.thread, "cat": category}
            times = {"ts": _us(begin - origin), "dur": _us(end - begin)}
            events.append({"name": name} | place | times | ({"args": args} if args else {}))
        for track, name, at, args in self._counts:
            place = {"ph": "C", "pid": track.process, "tid": track.thread}
            events.append({"name": name} | place | {"ts": _us(at - origin), "args": args})
        return events


def seconds(moment: datetime) -> float:
    """Return a time as seconds since the epoch."""
    return moment.timestamp()


def _names(tracks: Iterable[Track]) -> Iterable[Json]:
    named: set[int] = set()
    for track in tracks:
        if track.process not in named:
            named.add(track.process)
            yield _meta("process_name", track, track.process_name)
            order: Json = {"args": {"sort_index": track.process}}
            yield _meta("process_sort_index", track, "") | order
        yield _meta("thread_name", track, track.thread_name)


def _meta(kind: str, track: Track, name: str) -> Json:
    place = {"ph": "M", "pid": track.process, "tid": track.thread}
    return {"name": kind} | place | {"args": {"name": name}}


def _us(value: float) -> float:
    return round(value * MICROSECONDS, 1)
