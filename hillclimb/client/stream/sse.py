"""Reads server-sent events.

Source: WHATWG HTML, section 9.2 (event streams); only the fields that the service sends are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One frame: its event name, its id (the run's `seq`), and its JSON data."""

    name: str
    id: int | None
    data: Any


def lines_of(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a stream of chunks, without their ends (LF or CR LF).

    No other character ends a line: JSON may contain U+2028 and others, at which `str.splitlines`
    would split.
    """
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split("\n")
        yield from (line.removesuffix("\r") for line in lines)
    if rest:
        yield rest


def parse_stream(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Yield the frames of a stream of lines without line ends; comments are skipped."""
    name, event_id = "message", None
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(name=name, id=event_id, data=json.loads("\n".join(data)))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id" and value.isdigit():
            event_id = int(value)
