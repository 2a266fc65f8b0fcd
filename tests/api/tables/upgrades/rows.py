"""Rows of every table of a database, made from what the database says of its tables.

No revision has rows of its own here: a column, a table or a foreign key of a later migration is
filled without a change of this file. Only a column with a closed list of values, or with the JSON
of a model, has an entry in `VALUES`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from typing import Any

import psycopg
from psycopg import sql

from api.admission.campaigns.request import CampaignModel, CampaignSpec
from hillclimb.process.code_revision import CodeRevision
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.events import GuardEvidence
from tests.fixtures import factories as make

ALEMBIC = frozenset({"alembic_version", "schema_revisions"})
"""Tables that `migrations/env.py` keeps itself."""
LEFT_NULL = frozenset(
    {"deleting_at", "deleted_at", "revoked_at", "trajectories_removed_at"}
    | {"token_values_removed_at", "origin", "pause_code", "stopped_early", "counts"}
)
"""Columns that have a value in rows of another kind, or that nobody reads."""
EVIDENCE = GuardEvidence(
    message="none of 3 steps had signal",
    measured=0.0,
    threshold=0.1,
    unit="share",
    n=3,
    items="steps",
    first_step=1,
    last_step=3,
)
CAMPAIGN = CampaignSpec(
    name="models", base=make.spec_body(), models=(CampaignModel(name="base", source="m"),)
)
CODE = CodeRevision(package_version="0.1.0", revision=None, source_digest="0" * 64, locks={})
FACTS: Mapping[str, Any] = {
    **dict.fromkeys(("content_hash", "split_hash"), "0" * 64),
    **dict.fromkeys(("num_excluded", "num_read", "num_duplicates", "num_copies"), 0),
    **{name: {} for name in ("envs", "dropped", "excluded", "ignored_fields")},
    **{name: [] for name in ("duplicates", "copies")},
}
"""Of a version of a dataset, as the first revision's code stored them."""
DONE = ReasonCode.COMPLETED.value
VALUES: Mapping[str, Any] = {
    "acceptances.observations": [],
    "acceptances.paths": [],
    "acceptances.target": "gpu",
    "acceptances.versions": {},
    "api_keys.scopes": ["runs:read"],
    "attempts.end_code": DONE,
    "attempts.state": "ended",
    "attempts.trainer_code": DONE,
    "audit_records.changes": [],
    "campaigns.spec": CAMPAIGN.model_dump(mode="json"),
    "checkpoints.qualification": "qualified",
    "clusters.cause": DONE,
    "clusters.state": "terminated",
    "compute_ledger.decoding": "train",
    "compute_ledger.kind": "train",
    "dataset_exclusions.scope": "task",
    "dataset_exclusions.source": "user",
    "dataset_versions.facts": FACTS,
    "dataset_versions.lint": {"findings": []},
    "deleted_runs.billed": [],
    "deleted_runs.reason": "request",
    "events.data": {"code": "dataset", "message": "a warning"},
    "events.type": "run.warning",
    "experiment_runs.role": "variant",
    "experiments.text": {"title": "It climbs"},
    "guard_trips.action": "alert",
    "guard_trips.evidence": EVIDENCE.model_dump(mode="json"),
    "guard_trips.guard": "no_signal",
    "guard_trips.policy": "alert",
    "issues.severity": "high",
    "issues.symptom": "failure",
    "members.role": "member",
    "offers.outcome": "up",
    "outbox.payload": {"channel": "#training"},
    "outbox.state": "delivered",
    "outcomes.decoding": "train",
    "outcomes.patterns": [],
    "outcomes.split": "train",
    "outcomes.status": "graded",
    "outcomes.stop_reason": "done",
    "pattern_searches.patterns": [],
    "price_quotes.offers": [],
    "rescored_outcomes.status": "graded",
    "runs.code": asdict(CODE),
    "runs.desired_state": "running",
    "runs.end_code": DONE,
    "runs.status": "succeeded",
    "runs.tags": ["nightly"],
    "slack_requests.kind": "command",
    "slack_requests.state": "done",
}
"""By `table.column`; every other column gets a value of its type."""
Key = tuple[str, tuple[Any, ...]]
"""Table and primary key of a row."""
Rows = dict[Key, Mapping[str, Any]]
"""Rows as JSON, by column."""
BY_TYPE: Mapping[str, Any] = {
    "boolean": False,
    "bytea": "\\x78",
    "double precision": 0.5,
    "jsonb": {},
    "timestamp with time zone": "2026-11-20T12:00:00+00:00",
}
BY_NAME = {"run_id": ("runs", "id")}
"""Columns that name a row of another table even where no foreign key says so."""
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attgenerated <> '' OR a.attidentity <> ''
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
  AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
KEYS = """
SELECT con.conrelid::regclass::text, mine.attname, con.confrelid::regclass::text, theirs.attname
FROM pg_constraint con
CROSS JOIN LATERAL unnest(con.conkey, con.confkey) AS pair(own, other)
JOIN pg_attribute mine ON mine.attrelid = con.conrelid AND mine.attnum = pair.own
LEFT JOIN pg_attribute theirs ON theirs.attrelid = con.confrelid AND theirs.attnum = pair.other
WHERE con.connamespace = 'public'::regnamespace AND con.contype = %s
ORDER BY con.conrelid, con.oid, mine.attnum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """A column as the database describes it."""

    table: str
    name: str
    type: str
    is_nullable: bool
    default: str | None
    is_filled_by_database: bool
    """Computed, or an identity."""
    refers_to: tuple[str, str] | None
    """Table and column of the key that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tables of a database as it is now, without those of Alembic."""

    tables: Mapping[str, list[SchemaColumn]]
    """In the order of their references."""
    keys: Mapping[str, list[str]]
    """Columns of each primary key."""

    @classmethod
    def of(cls, connection: psycopg.Connection) -> Schema:
        """Read the tables from the database."""
        foreign = {(t, c): (u, d) for t, c, u, d in connection.execute(KEYS, ["f"])}
        keys, tables = defaultdict(list), defaultdict(list)
        for table, column, _, _ in connection.execute(KEYS, ["p"]):
            keys[table].append(column)
        for table, name, kind, is_nullable, default, is_made in connection.execute(COLUMNS):
            column = SchemaColumn(
                table=table,
                name=name,
                type=kind,
                is_nullable=is_nullable,
                default=None if is_made else default,
                is_filled_by_database=is_made,
                refers_to=foreign.get((table, name), BY_NAME.get(name)),
            )
            tables[table].append(column)
        order = TopologicalSorter({name: _needs(columns) for name, columns in tables.items()})
        ordered = [name for name in order.static_order() if name not in ALEMBIC]
        return cls(tables={name: tables[name] for name in ordered}, keys=keys)

    def fill(
        self, connection: psycopg.Connection, tag: str, spec: Mapping[str, Any], *, is_full: bool
    ) -> Rows:
        """Insert a row into every table, all of one project, with `tag` in every text.

        `is_full`: every column has a value, otherwise only those that need one. A full row that
        names a parent in its own table gets one. `spec` is that of every run. Returns the rows.
        """
        known = {**VALUES, "runs.spec": spec, "campaign_cells.spec": spec}
        own: dict[tuple[str, str], Any] = {}
        made: Rows = {}
        for table, columns in self.tables.items():
            has_parent = any(c.refers_to and c.refers_to[0] == table for c in columns)
            for number in range(1, 3 if is_full and has_parent else 2):
                row = {
                    column.name: _value(column, own, known, tag, number)
                    for column in columns
                    if _is_filled(column, is_full=is_full)
                    and (column.refers_to is None or column.refers_to in own)
                }
                stored = _insert(connection, table, row)
                own |= {(table, name): value for name, value in stored.items()}
                made[self._key(table, stored)] = stored
        return made

    def rows(self, connection: psycopg.Connection) -> Rows:
        """Return every row of every table."""
        found: Rows = {}
        for table in self.tables:
            query = sql.SQL("SELECT to_jsonb(t) FROM {} t").format(sql.Identifier(table))
            for (row,) in connection.execute(query):
                found[self._key(table, row)] = row
        return found

    def _key(self, table: str, row: Mapping[str, Any]) -> Key:
        return table, tuple(row[name] for name in self.keys[table])


def _needs(columns: Iterable[SchemaColumn]) -> Iterator[str]:
    return (c.refers_to[0] for c in columns if c.refers_to and c.refers_to[0] != c.table)


def _insert(
    connection: psycopg.Connection, table: str, row: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Insert a row that is written as JSON, and return it whole."""
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    query = sql.SQL(
        "INSERT INTO {table} ({names}) SELECT {names}"
        " FROM jsonb_populate_record(NULL::{table}, %s::jsonb) RETURNING to_jsonb({table})"
    ).format(table=sql.Identifier(table), names=names)
    made = connection.execute(query, [json.dumps(row)]).fetchone()
    assert made is not None
    stored: Mapping[str, Any] = made[0]
    return stored


def _is_filled(column: SchemaColumn, *, is_full: bool) -> bool:
    if column.is_filled_by_database or column.name in LEFT_NULL:
        return False
    return is_full or (not column.is_nullable and column.default is None)


def _value(
    column: SchemaColumn,
    own: Mapping[tuple[str, str], Any],
    known: Mapping[str, Any],
    tag: str,
    number: int,
) -> Any:
    name = f"{column.table}.{column.name}"
    if column.refers_to is not None:
        return own[column.refers_to]
    if name in known:
        return known[name]
    if column.type.endswith("[]"):
        return []
    if column.type in ("bigint", "integer"):
        return number
    if column.type in BY_TYPE:
        return BY_TYPE[column.type]
    assert column.type in ("character varying", "text"), f"{name}: no value of {column.type}"
    return f"{column.name}-{tag}-{number}"
