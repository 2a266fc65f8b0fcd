"""The audit log shows columns that exist."""

from __future__ import annotations

from sqlalchemy import inspect

from api.tables import Base
from api.tables.access.audit import COLUMNS, IGNORED


def test_every_column_that_the_audit_log_shows_is_one_of_its_table() -> None:
    mappers = {mapper.local_table.name: mapper for mapper in Base.registry.mappers}  # type: ignore[attr-defined]
    assert set(mappers) >= IGNORED
    for table, names in COLUMNS.items():
        assert names <= set(inspect(mappers[table].class_).columns.keys()), table
