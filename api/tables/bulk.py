"""Writes many rows of a table in one statement, a column as one array of parameters.

`executemany` sends a statement per row: a step's rollouts and metrics are hundreds of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import JSON, Column, Float, String, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from api.tables.base import Base

Row: TypeAlias = Mapping[str, Any]
_DIALECT = postgresql.dialect()
_QUOTE = _DIALECT.identifier_preparer.quote


def insert_rows(session: Session, model: type[Base], rows: Sequence[Row]) -> None:
    """Insert rows, all with the columns of the first; the other columns get their defaults."""
    _write(session, model, rows, is_upsert=False)


def upsert_rows(session: Session, model: type[Base], rows: Iterable[Row]) -> None:
    """Insert rows, or replace those of their primary keys; the last one for a key wins."""
    names = [column.name for column in _table(model).primary_key]
    unique = {tuple(row[name] for name in names): row for row in rows}
    _write(session, model, list(unique.values()), is_upsert=True)


def _write(session: Session, model: type[Base], rows: Sequence[Row], *, is_upsert: bool) -> None:
    if not rows:
        return
    table, names = _table(model), tuple(rows[0])
    convert = [_converter(table.columns[name]) for name in names]
    # Each value is one array, whose elements unnest makes rows of again.
    values = tuple(
        [convert(row[name]) for row in rows] for name, convert in zip(names, convert, strict=True)
    )
    statement = _upsert(model, names) if is_upsert else _insert(model, names)
    session.connection().exec_driver_sql(statement, values)


@cache
def _insert(model: type[Base], names: tuple[str, ...]) -> str:
    table = _table(model)
    columns = [table.columns[name] for name in names]
    quoted = [_QUOTE(name) for name in names]
    # Documents go as text: psycopg makes no array of jsonb of plain strings.
    selected = [
        f"{name}::jsonb" if isinstance(column.type, JSON) else name
        for name, column in zip(quoted, columns, strict=True)
    ]
    arrays = [f"%s::{_array_of(column)}" for column in columns]
    return (
        f"INSERT INTO {_QUOTE(table.name)} ({', '.join(quoted)}) SELECT {', '.join(selected)}"
        f" FROM unnest({', '.join(arrays)}) AS given ({', '.join(quoted)})"
    )


@cache
def _upsert(model: type[Base], names: tuple[str, ...]) -> str:
    table = _table(model)
    keys = {column.name for column in table.primary_key}
    key = ", ".join(_QUOTE(column.name) for column in table.primary_key)
    new = (_QUOTE(column.name) for column in table.columns if column.name not in keys)
    replaced = ", ".join(f"{name} = excluded.{name}" for name in new)
    return f"{_insert(model, names)} ON CONFLICT ({key}) DO UPDATE SET {replaced}"


def _array_of(column: Column[Any]) -> str:
    if isinstance(column.type, JSON):
        return "text[]"
    return f"{column.type.compile(_DIALECT)}[]"


def _converter(column: Column[Any]) -> Callable[[Any], Any]:
    """Return what makes an array's element of a value: the elements have one type.

    A document that is None is stored as JSON's null, as SQLAlchemy does.
    """
    if isinstance(column.type, JSON):
        return json.dumps
    if isinstance(column.type, Float):
        return lambda value: None if value is None else float(value)
    if isinstance(column.type, String):
        return lambda value: None if value is None else str(value)
    return lambda value: value


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table
