"""Searches a log by level, component, environment or text, a bounded part per page.

A record is a line that the trainer or a node logged, with the unlogged lines after it: tracebacks
and output of libraries. Lines of Ray's workers begin with the name of their process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from api.results.artifacts.logs import SEGMENT_BITS, LogPage, segments
from hillclimb.blobs.base import BlobStore

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
LEVELS: tuple[str, ...] = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SCAN_BYTES = 8 << 20
"""Approximate size of the log searched per page: a search of a long log takes several pages."""
RECORD_BYTES = 64 << 10
"""Maximum size of a record; further lines form another one, and so does the rest of a longer line:
progress bars and output of libraries may have gigabytes without a line of the trainer."""
HEAD_BYTES = 512
"""Where the beginning of a logged line ends: whoever writes a log can write lines of any length."""
_COLOUR = rb"(?:\x1b\[[0-9;]*m)*"
# Two repetitions of the same text never follow each other: a regex would try every split of it.
_WHO = _COLOUR + rb"(?:\([^)\n]*\)" + _COLOUR + rb")?\s*"
_HEAD = re.compile(
    rb"^" + _WHO + rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+ (?P<level>[A-Z]+) (?P<name>[\w.]+): "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Conditions on a log record; None does not filter."""

    level: Level | None = None
    """Lowest level."""
    component: str | None = None
    """Prefix of the logger's name; `trainer.` may be omitted."""
    environment: str | None = None
    """A word in the record."""
    text: str | None = None
    """Part of the record, case-insensitive."""

    @property
    def is_active(self) -> bool:
        """True when a condition is set."""
        return any((self.level, self.component, self.environment, self.text))

    def matches(self, record: bytes) -> bool:
        """Return True if a record fulfils all conditions."""
        head = _head(record)
        level, name = (head["level"].decode(), head["name"].decode()) if head else ("", "")
        if self.level and (level not in LEVELS or _rank(level) < _rank(self.level)):
            return False
        if self.component and not _is_of(name, self.component):
            return False
        text = record.decode(errors="replace")
        if self.environment:
            word = rf"(?<![\w-]){re.escape(self.environment)}(?![\w-])"
            if not re.search(word, text):
                return False
        return self.text is None or self.text.casefold() in text.casefold()


def search_log(
    store: BlobStore, run_id: str, attempt: int, filter_: LogFilter, *, after: int, limit: int
) -> LogPage:
    """Return the matching records after position `after`, up to about `limit` bytes.

    A page may be empty and have more behind it: one request searches only a part of the log.
    """
    lines: list[bytes] = []
    room, scanned, position = limit, 0, after
    for record, end in _records(store, run_id, attempt, after=after):
        is_match = filter_.matches(record)
        if is_match and lines and len(record) > room:
            return _page(lines, position, has_more=True)
        if is_match:
            lines.append(record)
            room -= len(record)
        scanned += len(record)
        position = end
        if scanned >= SCAN_BYTES or room <= 0:
            return _page(lines, position, has_more=True)
    return _page(lines, position, has_more=False)


def _records(
    store: BlobStore, run_id: str, attempt: int, *, after: int
) -> Iterator[tuple[bytes, int]]:
    """Yield each record with the position behind it."""
    lines: list[bytes] = []
    position, size = after, 0
    for line, end in _lines(store, run_id, attempt, after=after):
        if lines and (_head(line) or size + len(line) > RECORD_BYTES):
            yield b"".join(lines), position
            lines, size = [], 0
        lines.append(line)
        size += len(line)
        position = end
    if lines:
        yield b"".join(lines), position


def _lines(
    store: BlobStore, run_id: str, attempt: int, *, after: int
) -> Iterator[tuple[bytes, int]]:
    first, offset = max(1, after >> SEGMENT_BITS), after & ((1 << SEGMENT_BITS) - 1)
    for number, data in segments(store, run_id, attempt, first=first):
        for line in data[offset:].splitlines(keepends=True):
            for begin in range(0, len(line), RECORD_BYTES):
                piece = line[begin : begin + RECORD_BYTES]
                offset += len(piece)
                yield piece, number << SEGMENT_BITS | offset
        offset = 0


def _head(line: bytes) -> re.Match[bytes] | None:
    return _HEAD.match(line, 0, HEAD_BYTES)


def _page(lines: list[bytes], position: int, *, has_more: bool) -> LogPage:
    text = b"".join(lines).decode(errors="replace")
    return LogPage(text=text, next_offset=position, has_more=has_more)


def _rank(level: str) -> int:
    return LEVELS.index(level)


def _is_of(name: str, component: str) -> bool:
    return any(
        name == whole or name.startswith(f"{whole}.")
        for whole in (component, f"trainer.{component}")
    )
