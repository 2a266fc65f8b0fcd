"""An app's tables as the SQLite databases that Fleet's clients read: describe, query, diff."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pydantic import JsonValue

from hillclimb.minifleet.framework.world import Table

Tables = Mapping[str, Table]
MAX_ROWS = 10_000
_STEPS_BETWEEN_CHECKS = 10_000
_MAX_CHECKS = 200
"""A query may take two million steps of SQLite's virtual machine."""
_READ_ACTIONS = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "randomblob", "zeroblob"))


class QueryRefused(Exception):
    """SQLite refuses the query, or it takes too long; the message gives the reason."""


def columns_of(*states: Tables) -> dict[str, list[str]]:
    """Return each table's columns: the fields of all rows of all states, `id` first."""
    columns: dict[str, dict[str, None]] = {}
    for tables in states:
        for name, table in tables.items():
            fields = columns.setdefault(name, {"id": None})
            for row in table.values():
                fields |= dict.fromkeys(row)
    return {name: list(fields) for name, fields in columns.items()}


def schema(columns: Mapping[str, Sequence[str]]) -> list[JsonValue]:
    """Return the tables in Fleet's format. Columns have no type: values have their own."""
    return [
        {
            "name": name,
            "sql": _create(name, fields),
            "columns": [
                {
                    "name": field,
                    "type": "",
                    "notnull": False,
                    "default_value": None,
                    "primary_key": field == "id",
                }
                for field in fields
            ],
        }
        for name, fields in columns.items()
    ]


def query(
    tables: Tables, columns: Mapping[str, Sequence[str]], sql: str, args: Sequence[JsonValue]
) -> tuple[list[str], list[list[JsonValue]]]:
    """Run one read-only statement; return its columns and at most `MAX_ROWS` rows.

    Raises:
        QueryRefused: it writes, is malformed, or takes too long.
    """
    num_checks = 0

    def check_progress() -> int:
        nonlocal num_checks
        num_checks += 1
        return int(num_checks > _MAX_CHECKS)

    with closing(_database(tables, columns)) as database:
        database.set_authorizer(_authorize)
        database.set_progress_handler(check_progress, _STEPS_BETWEEN_CHECKS)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        try:
            cursor = database.execute(sql, args)
            names = [each[0] for each in cursor.description or ()]
            return names, [[_plain(value) for value in row] for row in cursor.fetchmany(MAX_ROWS)]
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise QueryRefused(str(error)) from error


def _authorize(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    if action not in _READ_ACTIONS or (
        action == sqlite3.SQLITE_FUNCTION and name in _FORBIDDEN_FUNCTIONS
    ):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _database(tables: Tables, columns: Mapping[str, Sequence[str]]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for name, fields in columns.items():
        database.execute(_create(name, fields))
        places = ", ".join("?" for _ in fields)
        rows = [[row.get(field) for field in fields] for row in tables[name].values()]
        database.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
    return database


def _create(name: str, fields: Sequence[str]) -> str:
    keys = ", ".join(f'"{each}" PRIMARY KEY' if each == "id" else f'"{each}"' for each in fields)
    return f'CREATE TABLE "{name}" ({keys})'


def _plain(value: object) -> JsonValue:
    """Return a JSON value: blobs and infinite numbers become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFilter:
    """Exclusions of a diff: tables, fields of all tables, fields of one table."""

    tables: Collection[str] = ()
    fields: Collection[str] = ()
    table_fields: Mapping[str, Collection[str]] = field(default_factory=dict)

    def apply(self, table: str, row: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the row without the excluded fields."""
        hidden = {*self.fields, *self.table_fields.get(table, ())}
        return {name: value for name, value in row.items() if name not in hidden}


def structured_diff(seed: Tables, current: Tables, exclusions: DiffFilter) -> dict[str, JsonValue]:
    """Return the difference of two states in the form of Fleet's `/diff/structured`."""
    return {
        name: _table_diff(name, before, current[name], exclusions)
        for name, before in seed.items()
        if name not in exclusions.tables
    }


def _table_diff(name: str, before: Table, after: Table, exclusions: DiffFilter) -> JsonValue:
    added = [exclusions.apply(name, row) for key, row in after.items() if key not in before]
    removed = [exclusions.apply(name, row) for key, row in before.items() if key not in after]
    modified: list[JsonValue] = []
    for key in before.keys() & after.keys():
        old, new = exclusions.apply(name, before[key]), exclusions.apply(name, after[key])
        changes: dict[str, JsonValue] = {
            each: {"before": old.get(each), "after": new.get(each)}
            for each in sorted(old.keys() | new.keys())
            if old.get(each) != new.get(each)
        }
        if changes:
            row_id = after[key]["id"]
            modified.append({"row_id": row_id, "changes": changes, "data": dict(new)})
    num_unchanged = len(before.keys() & after.keys()) - len(modified)
    return {
        "table_name": name,
        "primary_key": ["id"],
        "added_rows": [{"row_id": row.get("id"), "data": row} for row in added],
        "removed_rows": [{"row_id": row.get("id"), "data": row} for row in removed],
        "modified_rows": modified,
        "unchanged_count": num_unchanged,
        "total_changes": len(added) + len(removed) + len(modified),
    }
