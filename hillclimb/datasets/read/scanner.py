"""Incremental parser of a file of tasks: a list, an object with `tasks`, or JSON lines.

Only the current row is in memory, and no row is longer than `MAX_ROW_CHARS`. Faults of the file are
yielded like rows, and nothing raises.

Why not `ijson`: its C backend (3.6.0) crashes the process on a whole number of more than 4,300
digits and replaces a lone surrogate by "?", and its Python backend is an order of magnitude slower.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hillclimb.datasets.format.rows import RowProblem, printable

MAX_ROW_CHARS = 16 * 2**20
"""Limit of a row's length (characters)."""
_MIN_READ_CHARS = 2**16
_MAX_INT_CHARS = 40
"""Whole numbers written with more characters than this are read as infinite, which no row may
hold; Python refuses to read those of more than 4,300."""
_MAX_EXPONENT_START = 2
"""A number may continue while no more than this follows it: "1" of "1e-5" ends before "e-"."""

_MAX_TOKEN_START = 16
"""Limit of an incomplete token other than a text, such as "-Infinit" or an escape: a fault further
from the end of the buffer is not due to the end of the buffer."""
_OPEN_TEXT = "Unterminated string"
"""Prefix of `json`'s message about a text without an end, which may follow in the next chunk."""

_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The JSON value at one position of a file (from 1)."""

    number: int
    value: Any


class _Broken(Exception):  # never leaves this module
    """The file cannot be read further."""

    field: str | None = None


class _Repeated(_Broken):
    """An object names a field twice."""

    def __init__(self, field: str) -> None:
        super().__init__("is given twice: keep one of the two")
        self.field = printable(field)


def scan(chunks: Iterable[bytes]) -> Iterator[Parsed | RowProblem]:
    """Yield the rows and problems of a UTF-8 file that arrives in chunks of any size.

    A problem in a list or an object ends the reading; in JSON lines it affects one line.
    """
    scanner = _Scanner(chunks)
    try:
        yield from scanner.rows()
    except _Broken as fault:
        yield scanner.problem(fault)


class _Scanner:
    """Buffer and position in a text that arrives in chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._number = 1
        self._row_chars = 0
        self._repeated: list[str] = []
        self._json = json.JSONDecoder(object_pairs_hook=self._object, parse_int=_read_int)

    def rows(self) -> Iterator[Parsed | RowProblem]:
        """Yield the rows and problems of the file, whichever form it has."""
        match self._peek():
            case "[":
                yield from self._list()
                self._expect_end()
            case "{":
                yield from self._object_or_lines()
            case "":
                raise _Broken("the file is empty: it must hold tasks")
            case _:
                raise _Broken(
                    "the file does not start like JSON: it must be a list of tasks, an object with"
                    " a list `tasks`, or one task per line"
                )

    def problem(self, fault: _Broken) -> RowProblem:
        """Return a fault as a problem of the current row."""
        return RowProblem(row=self._number, field=fault.field, message=str(fault))

    def _list(self) -> Iterator[Parsed | RowProblem]:
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self._peek()
            try:
                self._row_chars = 0
                yield Parsed(self._number, self._value())
            except _Repeated as fault:
                yield self.problem(fault)
            match self._peek():
                case ",":
                    self._at += 1
                    self._number += 1
                case "]":
                    self._at += 1
                    return
                case follows:
                    raise _Broken(
                        f"is followed by {follows!r} where a comma or the end of the list belongs"
                        if follows
                        else "is the last one, and the list does not end: the file is cut off"
                    )

    def _object_or_lines(self) -> Iterator[Parsed | RowProblem]:
        """Read an object member by member: one with a list `tasks`, or the first of the lines."""
        self._at += 1
        first: dict[str, Any] = {}
        has_tasks = False
        follows = self._peek()
        while follows != "}":
            name = self._name()
            if name in first or (name == "tasks" and has_tasks):
                raise _Repeated(name)
            if name == "tasks" and self._peek() == "[":
                has_tasks = True
                yield from self._list()
            else:
                first[name] = self._value()
            follows = self._after_member()
        self._at += 1
        if has_tasks:
            self._expect_end()
        elif "tasks" in first:
            raise _Broken("`tasks` is not a list: write the tasks as [{…}, {…}]")
        else:
            yield Parsed(self._number, first)
            yield from self._lines()

    def _name(self) -> str:
        name = self._value() if self._peek() == '"' else None
        if not isinstance(name, str) or self._peek() != ":":
            raise _Broken('is not JSON: a name in double quotes and a colon belong here: {"key": …')
        self._at += 1
        self._peek()
        return name

    def _after_member(self) -> str:
        """Skip a comma; return the end of the object, or the start of its next member."""
        follows = self._peek()
        if follows == ",":
            self._at += 1
            self._peek()
        elif follows != "}":
            raise _Broken("is an object that does not end: the file is cut off or malformed")
        return follows

    def _lines(self) -> Iterator[Parsed | RowProblem]:
        """Read the remainder of the first object's line, then one object per line."""
        self._expect_blank(self._line())
        while self._peek():
            self._number += 1
            line = self._line()
            try:
                self._expect_length(len(line))
                value, end = self._decoded(line, 0)
                self._expect_blank(line[end:])
                self._expect_distinct_names()
            except json.JSONDecodeError as error:
                yield self.problem(_not_json(error))
            except _Broken as fault:
                yield self.problem(fault)
            else:
                yield Parsed(self._number, value)

    def _value(self) -> object:
        """Decode the value at the position, reading more chunks while it is incomplete."""
        while True:
            try:
                value, end = self._decoded(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended or not _may_go_on(error):
                    raise _not_json(error) from None
                begun = f": the text that begins near {_near(error)} does not end"
            else:
                is_number = isinstance(value, int | float)
                if self._ended or not is_number or end + _MAX_EXPONENT_START < len(self._text):
                    self._row_chars += end - self._at
                    self._at = end
                    self._expect_length(self._row_chars)
                    self._expect_distinct_names()
                    return value
                begun = ""
            self._read(begun)

    def _decoded(self, text: str, at: int) -> tuple[object, int]:
        self._repeated.clear()
        try:
            return self._json.raw_decode(text, at)
        except RecursionError:
            raise _Broken("is nested too deeply: flatten it") from None

    def _expect_length(self, num_chars: int, begun: str = "") -> None:
        """Refuse a row that is too long; `begun` names its possible start."""
        if num_chars > MAX_ROW_CHARS:
            raise _Broken(f"is longer than {MAX_ROW_CHARS:,} characters{begun}")

    def _expect_distinct_names(self) -> None:
        if self._repeated:
            raise _Repeated(self._repeated[0])

    def _expect_blank(self, line: str) -> None:
        if _SPACE.fullmatch(line) is None:
            text = line.strip()[:20]
            raise _Broken(f"is followed by {text!r} on the same line: start a new line")

    def _line(self) -> str:
        """Return the text up to the end of the line, and skip it."""
        searched = self._at
        while (end := self._text.find("\n", searched)) < 0 and not self._ended:
            num_unread = len(self._text) - self._at
            self._read()
            searched = num_unread
        start, self._at = self._at, len(self._text) if end < 0 else end + 1
        return self._text[start : self._at]

    def _peek(self) -> str:
        """Skip white space and return the next character, "" at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read()

    def _expect_end(self) -> None:
        if follows := self._peek():
            raise _Broken(
                f"is the last one, but {follows!r} follows the end of the tasks: remove it"
            )

    def _read(self, begun: str = "") -> None:
        """Double the buffer, so that a long row takes linear time.

        Raises:
            _Broken: the row is too long (`begun` names its possible start), or the file is not
                UTF-8.
        """
        pieces = [self._text[self._at :]]
        num_unread = len(pieces[0])
        self._expect_length(num_unread, begun)
        num_chars = max(num_unread, _MIN_READ_CHARS)
        try:
            while num_chars > 0 and not self._ended:
                chunk = next(self._chunks, None)
                self._ended = chunk is None
                pieces.append(self._utf8.decode(chunk or b"", final=self._ended))
                num_chars -= len(pieces[-1])
        except UnicodeDecodeError:
            raise _Broken(
                "it, or a row soon after it, is not UTF-8: save the file as UTF-8"
            ) from None
        self._text, self._at = "".join(pieces), 0

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            self._repeated.append(next(name for name in names if names.count(name) > 1))
        return members


def _read_int(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_INT_CHARS else math.inf


def _may_go_on(error: json.JSONDecodeError) -> bool:
    """Tell whether a fault may be due to the end of the buffer."""
    return error.msg.startswith(_OPEN_TEXT) or error.pos + _MAX_TOKEN_START >= len(error.doc)


def _not_json(error: json.JSONDecodeError) -> _Broken:
    return _Broken(f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}, near {_near(error)}")


def _near(error: json.JSONDecodeError) -> str:
    return ascii(error.doc[max(0, error.pos - 20) : error.pos + 20])
