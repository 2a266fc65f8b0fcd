"""Rollouts on a timeline: slots of each rollout worker, turns and calls inside, load of engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from api.results.artifacts.timeline.trace import Json, Trace, Track
from hillclimb.blobs.archive.gzip_file import GzipLimit, stored_lines
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.payloads.results.rollouts import StoredSpan, StoredTimes

WORKERS, ENGINES = 1000, 2000
"""First numbers of the processes of rollout workers and engines, above those of attempts."""
SAMPLE, CALL = "sample", "call"
FILE_LIMIT = GzipLimit(unpacked_bytes=64 << 20)
"""What is read of one file of times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """Name and arguments of a rollout's slice."""

    name: str
    args: Json


def read_times(store: BlobStore, keys: Iterable[str]) -> Iterator[StoredTimes]:
    """Yield the stored times of rollouts; files that are missing, damaged or too large have none.

    Raises:
        StoreError: the store does not respond.
    """
    for key in keys:
        try:
            lines = stored_lines(store, key, FILE_LIMIT)
            yield from [StoredTimes.model_validate_json(line) for line in lines]
        except (BlobMissing, ValueError):
            continue


def draw_rollouts(
    trace: Trace, times: Sequence[StoredTimes], facts: Mapping[str, RolloutFacts]
) -> int:
    """Draw the rollouts that have facts; return their number.

    A worker runs many at once: each is in the first slot that is free when it begins.
    """
    drawn = sorted((t for t in times if t.rollout_id in facts), key=lambda each: each.began_at)
    free_at: dict[int, list[float]] = defaultdict(list)
    for rollout in drawn:
        begin, end = rollout.began_at, rollout.began_at + _length(rollout.spans)
        slot = _slot(free_at[rollout.worker], begin, end)
        name = f"rollout worker {rollout.worker}"
        track = Track(WORKERS + rollout.worker, name, slot, f"slot {slot + 1}")
        fact = facts[rollout.rollout_id]
        args = fact.args | {"engine": rollout.engine}
        trace.slice(track, fact.name, begin, end, category="rollout", args=args)
        for label, span in _labelled(rollout.spans):
            at = begin + span.began_s
            failed = {"failed": True} if span.failed else {}
            trace.slice(track, label, at, at + span.seconds, category=span.kind, args=failed)
    _draw_engines(trace, drawn)
    return len(drawn)


def _labelled(spans: Sequence[StoredSpan]) -> Iterator[tuple[str, StoredSpan]]:
    """Yield the spans with their labels: turns are numbered, calls have the names of their tools.

    A reset begins a try, and its turns count from 1 again.
    """
    turns = count(1)
    for span in spans:
        if span.kind == "reset":
            turns = count(1)
        if span.kind == SAMPLE:
            yield f"turn {next(turns)}", span
        else:
            yield (span.label or span.kind), span


def _slot(free_at: list[float], begin: float, end: float) -> int:
    for slot, free in enumerate(free_at):
        if free <= begin:
            free_at[slot] = end
            return slot
    free_at.append(end)
    return len(free_at) - 1


def _length(spans: Sequence[StoredSpan]) -> float:
    return max((span.began_s + span.seconds for span in spans), default=0.0)


def _draw_engines(trace: Trace, drawn: Sequence[StoredTimes]) -> None:
    """Draw how many turns of these rollouts each engine sampled at once."""
    changes: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for rollout in drawn:
        for span in rollout.spans:
            if span.kind == SAMPLE:
                at = rollout.began_at + span.began_s
                changes[rollout.engine] += [(at, 1), (at + span.seconds, -1)]
    for engine, steps in sorted(changes.items()):
        track = Track(ENGINES + engine, f"engine {engine}", 0, "turns in sampling")
        running = 0
        for at, change in sorted(steps):
            running += change
            trace.count(track, "turns in sampling", at, running)
