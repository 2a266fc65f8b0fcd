"""Reads a run's log: the numbered segments of an attempt as one text, from any position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.rundir import log_segment, run_key

SEGMENT_BITS = 32
"""A position is `segment << 32 | offset`: it grows, fits a JSON number, and names the segment to
read, so that following a log costs one read however long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Part of a log and the position of the next part."""

    text: str
    next_offset: int
    has_more: bool
    """True when more is available already: a follower then requests it at once."""


def read_log(store: BlobStore, run_id: str, attempt: int, *, after: int, limit: int) -> LogPage:
    """Return up to `limit` bytes of the attempt's log after position `after` (0: the start).

    Invalid UTF-8 becomes U+FFFD; a page never ends inside a character.
    """
    first, offset = max(1, after >> SEGMENT_BITS), after & ((1 << SEGMENT_BITS) - 1)
    parts: list[bytes] = []
    room = limit
    for number, data in segments(store, run_id, attempt, first=first):
        part = data[offset:]
        if len(part) > room:
            part = _whole_characters(part[:room])
        parts.append(part)
        room -= len(part)
        offset += len(part)
        if offset < len(data):
            return _page(parts, number, offset, has_more=True)
        end = (number, offset)
        offset = 0
    if not parts:
        return LogPage(text="", next_offset=after, has_more=False)
    return _page(parts, *end, has_more=False)


def _page(parts: list[bytes], number: int, offset: int, *, has_more: bool) -> LogPage:
    text = b"".join(parts).decode(errors="replace")
    return LogPage(text=text, next_offset=number << SEGMENT_BITS | offset, has_more=has_more)


def segments(
    store: BlobStore, run_id: str, attempt: int, *, first: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the segments from the `first`-th on, each with its number."""
    number = first
    while True:
        try:
            yield number, store.get(run_key(run_id, log_segment(attempt, number)))
        except BlobMissing:
            return
        number += 1


def _whole_characters(data: bytes) -> bytes:
    """Cut an incomplete last character, unless nothing else would remain."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return data if length <= back else data[:-back] or data
    return data


TAIL_BYTES = 16 << 10
"""Part of the log from which `tail_log` takes its lines."""


def tail_log(store: BlobStore, run_id: str, attempt: int, *, num_lines: int = 12) -> str:
    """Return the last lines of the attempt's log, each cut at 300 characters."""
    last = _last_segment(store, run_id, attempt)
    data = b""
    while last >= 1 and len(data) < TAIL_BYTES:
        data = store.get(run_key(run_id, log_segment(attempt, last))) + data
        last -= 1
    lines = data[-TAIL_BYTES:].decode(errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines[-num_lines:])


def _last_segment(store: BlobStore, run_id: str, attempt: int) -> int:
    """Return the number of the newest segment, 0 without any: they are numbered without gaps."""
    first, beyond = 0, 1
    while store.exists(run_key(run_id, log_segment(attempt, beyond))):
        first, beyond = beyond, beyond * 2
    while beyond - first > 1:
        middle = (first + beyond) // 2
        if store.exists(run_key(run_id, log_segment(attempt, middle))):
            first = middle
        else:
            beyond = middle
    return first
