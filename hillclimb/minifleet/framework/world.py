"""The state of one miniature app: tables of flat rows, plus who is logged in and what day it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

Scalar = str | int
Row = dict[str, Scalar]
Table = dict[str, Row]

_FIRST, _COUNT, _STRIDE = 10, 90, 7
"""Ids carry two digits; the stride is coprime to their count, so a walk meets each one once."""


class RuleBroken(Exception):
    """The app refuses a call; its text is the tool's error result."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed reading of a JSON object whose shape was checked before."""

    values: Mapping[str, JsonValue]

    def text(self, name: str, default: str = "") -> str:
        """Return the string under `name`, or `default` where it is absent."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a string")
        return value

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def number(self, name: str) -> int:
        """Return the integer under `name`."""
        value = self.values[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not an integer")
        return value


def next_number(used: Collection[int], start: int) -> int:
    """Return the first free two-digit number on the walk that begins at `start`.

    Raises:
        RuleBroken: all ninety are used.
    """
    for step in range(_COUNT):
        number = _FIRST + (start + step * _STRIDE) % _COUNT
        if number not in used:
            return number
    raise RuleBroken("the app is full")


@dataclass(slots=True)
class World:
    """A mutable app state; `tables` maps table name to row id to row (each row holds its `id`)."""

    user: str
    today: str
    fresh: int
    """Start of the walk over new ids, so that new ids depend on the task alone."""
    tables: dict[str, Table]

    def rows(self, table: str, **equal: Scalar) -> list[Row]:
        """Return the rows whose fields equal `equal`, in insertion order."""
        return [
            row
            for row in self.tables[table].values()
            if all(row[name] == value for name, value in equal.items())
        ]

    def get(self, table: str, row_id: Scalar, noun: str) -> Row:
        """Return one row.

        Raises:
            RuleBroken: there is none; the text names `noun` and the id.
        """
        row = self.tables[table].get(str(row_id))
        if row is None:
            raise RuleBroken(f"no {noun} {quoted(row_id)}")
        return row

    def add(self, table: str, prefix: str, **row: Scalar) -> Scalar:
        """Insert a row under a fresh id (`prefix` + number, or an int for "") and return the id."""
        used = {int(key.removeprefix(prefix)) for key in self.tables[table]}
        number = next_number(used, self.fresh)
        row_id: Scalar = f"{prefix}{number}" if prefix else number
        self.tables[table][str(row_id)] = {"id": row_id, **row}
        return row_id

    def put(self, table: str, row_id: str, **row: Scalar) -> None:
        """Insert or replace the row under a natural key."""
        self.tables[table][row_id] = {"id": row_id, **row}


def copy_tables(tables: Mapping[str, Iterable[Mapping[str, Scalar]]]) -> dict[str, Table]:
    """Return fresh tables from lists of rows, keyed by each row's `id`."""
    return {name: {str(row["id"]): dict(row) for row in rows} for name, rows in tables.items()}


def quoted(value: Scalar, limit: int = 24) -> str:
    """Return a value for an error text, cut so that an observation stays short."""
    text = str(value)
    return f'"{text[:limit]}"' if len(text) <= limit else f'"{text[:limit]}..."'


def matches(query: str, *candidates: Scalar) -> bool:
    """Tell whether the query is contained in any candidate, whatever the case."""
    needle = query.casefold()
    return any(needle in str(candidate).casefold() for candidate in candidates)


def same(left: Scalar, right: Scalar) -> bool:
    """Tell whether two names are equal, whatever the case."""
    return str(left).casefold() == str(right).casefold()
