"""The audit log: one record per request that changed something, in the transaction of the change.

Sessions of browsers and refused keys are recorded too, with the address that they came from.

The HTTP layer opens a draft for the request; the sessions of `Database` call `collect` before each
flush, and its transactions store the record before they commit. Only columns that `COLUMNS` lists
are copied: a table without an entry is recorded by name and id alone, so that a new column can
never leak a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import insert, inspect, or_, select
from sqlalchemy.orm import ORMExecuteState, Session

from api.tables import ApiKey, AuditRecord, Base, Project
from api.tables.access.identity import (
    DEFAULT_PROJECT,
    PREFIX_CHARS,
    Principal,
    digest_of,
    is_key_of,
)
from api.tables.ids import new_id

MAX_CHANGES = 20
"""Rows that one record describes."""
MAX_VALUE_CHARS = 200
IGNORED = frozenset({"audit_records", "events", "idempotency_keys"})
"""Tables that say nothing about a change by themselves."""
COLUMNS: Mapping[str, frozenset[str]] = {
    "acceptances": frozenset({"target", "subject", "paths"}),
    "api_keys": frozenset({"name", "scopes", "expires_at", "revoked_at", "previous_until"}),
    "campaigns": frozenset({"name"}),
    "dataset_exclusions": frozenset({"scope", "key", "reason", "expires_at"}),
    "dataset_versions": frozenset({"number", "digest"}),
    "deleted_runs": frozenset({"name", "reason"}),
    "experiments": frozenset({"key", "parent_id"}),
    "guard_trips": frozenset({"guard", "acknowledged_at"}),
    "issues": frozenset({"title", "severity", "resolution", "closed_at"}),
    "members": frozenset({"role", "accepted_at"}),
    "project_limits": frozenset({"usd", "hours", "max_clusters"}),
    "project_quotas": frozenset(
        {"queued_runs", "running_runs", "submissions_per_hour", "dataset_bytes"}
    ),
    "project_secrets": frozenset({"hosts", "version"}),
    "projects": frozenset({"name"}),
    "budget_extensions": frozenset({"run_id", "usd", "hours"}),
    "runs": frozenset({"name", "status", "desired_state"}),
    "webhooks": frozenset({"events", "is_enabled", "description", "previous_until"}),
}


@dataclass(slots=True, kw_only=True)
class AuditDraft:
    """The record of a request that may change something, as far as it is known."""

    caller: Principal
    route: str
    target: str | None
    """Id in the path of the request; null where the request creates something."""
    request_id: str
    changes: list[dict[str, Any]] = field(default_factory=list)
    has_written: bool = False
    is_recorded: bool = False


_draft: ContextVar[AuditDraft | None] = ContextVar("audit_draft", default=None)


@contextmanager
def auditing(draft: AuditDraft) -> Iterator[None]:
    """Let the transactions of this request record themselves under `draft`."""
    token = _draft.set(draft)
    try:
        yield
    finally:
        _draft.reset(token)


def name_target(target: str) -> None:
    """Say what the request changes, for one whose path does not: a form of a page."""
    if (draft := _draft.get()) is not None:
        draft.target = target


def note_created(row: Base) -> None:
    """Note a row that a statement stored, as an insert that may meet another row: no flush does."""
    if (draft := _draft.get()) is not None:
        _note(draft, _change("created", row))


def collect(session: Session, *_: object) -> None:
    """Note what a flush is about to write, as a listener of `before_flush`."""
    draft = _draft.get()
    if draft is None:
        return
    changed = [("created", row) for row in session.new]
    changed += [("changed", row) for row in session.dirty if session.is_modified(row)]
    changed += [("deleted", row) for row in session.deleted]
    for action, row in changed:
        if row.__tablename__ in IGNORED:
            continue
        _note(draft, _change(action, row))


def _note(draft: AuditDraft, change: dict[str, Any]) -> None:
    draft.has_written = True
    if (earlier := _same_row(draft, change)) is not None:
        earlier["before"] = change["before"] | earlier["before"]
        earlier["after"] |= change["after"]
    elif len(draft.changes) < MAX_CHANGES:
        draft.changes.append(change)


def _same_row(draft: AuditDraft, change: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an earlier flush of the request wrote to the same row; null for a deleted one."""
    keys = ("table", "id")
    same = (each for each in draft.changes if all(each[key] == change[key] for key in keys))
    earlier = next(same, None)
    return None if earlier is None or change["action"] == "deleted" else earlier


def notice(state: ORMExecuteState) -> None:
    """Note that a statement writes, as a listener of `do_orm_execute`."""
    draft = _draft.get()
    if draft is not None and (state.is_insert or state.is_update or state.is_delete):
        names = {mapper.local_table.name for mapper in state.all_mappers}  # type: ignore[attr-defined]
        draft.has_written |= not names <= IGNORED


@contextmanager
def recording(session: Session) -> Iterator[None]:
    """Store the draft's record at the end of the block, if it has written and none is stored yet.

    A block that raises is rolled back: what it wrote is no part of the draft.
    """
    draft = _draft.get()
    if draft is None or draft.is_recorded:
        yield
        return
    num_changes, had_written = len(draft.changes), draft.has_written
    try:
        yield
        session.flush()
    except BaseException:
        del draft.changes[num_changes:]
        draft.has_written = had_written
        raise
    if draft.has_written:
        store(session, draft)


def store(session: Session, draft: AuditDraft) -> None:
    """Store the draft's record."""
    draft.is_recorded = True
    caller = draft.caller
    created = next((each["id"] for each in draft.changes if each["action"] == "created"), None)
    record = {
        "id": new_id("aud"),
        "project_id": caller.project_id,
        "actor": caller.actor,
        "key_id": caller.key_id,
        "person_id": caller.person_id,
        "route": draft.route,
        "target": draft.target or created,
        "request_id": draft.request_id,
        "changes": draft.changes,
    }
    session.flush()  # The record may name what the session has not stored yet.
    session.connection().execute(_INSERT, record)


_INSERT = insert(AuditRecord.__table__)  # type: ignore[arg-type]
"""Not by the session: to track one more object takes longer than to store it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The request of a record: its route, its id, and the address that it came from."""

    route: str
    request_id: str
    address: str


def record_session(
    session: Session,
    caller: Principal,
    action: str,
    origin: Origin,
    table: str = "browser_sessions",
) -> None:
    """Record that a session, or the code of one, was `created` or `deleted`."""
    facts = {"address": origin.address}
    change = {"table": table, "id": caller.key_id or caller.person_id}
    before, after = ({}, facts) if action == "created" else (facts, {})
    draft = AuditDraft(
        caller=caller,
        route=origin.route,
        target=caller.key_id or caller.person_id,
        request_id=origin.request_id,
        changes=[change | {"action": action, "before": before, "after": after}],
    )
    store(session, draft)


def subject_of_refusal(session: Session, key: str) -> ApiKey | None:
    """Return the key that a refused one is, or was before, or has the first characters of."""
    prefix, digest = key[:PREFIX_CHARS], digest_of(key)
    query = select(ApiKey).where(or_(ApiKey.prefix == prefix, ApiKey.previous_prefix == prefix))
    alike = session.scalars(query.order_by(ApiKey.id)).all()
    return next((each for each in alike if is_key_of(each, digest)), alike[0] if alike else None)


def record_refusal(
    session: Session, subject: ApiKey | None, why: str, number: int, origin: Origin
) -> None:
    """Record refused keys in the project of the key that they are about, else in the operator's.

    `number` counts those since the last record. Nothing is recorded before the operator's project
    exists.
    """
    project_id = subject.project_id if subject is not None else DEFAULT_PROJECT
    if session.get(Project, project_id) is None:
        return
    after = {"why": why[:MAX_VALUE_CHARS], "address": origin.address, "times": number}
    identity = subject.id if subject is not None else None
    change: dict[str, Any] = {
        "table": "refused_keys",
        "id": identity,
        "action": "refused",
        "before": {},
    }
    session.add(
        AuditRecord(
            id=new_id("aud"),
            project_id=project_id,
            actor=f"address:{origin.address}",
            key_id=identity,
            person_id=None,
            route=origin.route,
            target=identity,
            request_id=origin.request_id,
            changes=[change | {"after": after}],
        )
    )


def record_deletion(
    session: Session, *, project_id: str, actor: str, change: dict[str, Any]
) -> None:
    """Record that nothing is left of what `actor` had requested to delete."""
    session.add(
        AuditRecord(
            id=new_id("aud"),
            project_id=project_id,
            actor=actor,
            key_id=None,
            person_id=None,
            route="worker removals.sweep",
            target=change["id"],
            request_id="",
            changes=[change],
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters:
    """Filters of the list of records; null filters nothing."""

    actor: str | None = None
    route: str | None = None
    """Part of the route."""
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_records(
    session: Session, project_id: str, filters: AuditFilters, *, before: str | None, limit: int
) -> list[AuditRecord]:
    """Return a project's records, newest first, older than the record `before`."""
    query = select(AuditRecord).where(AuditRecord.project_id == project_id)
    if filters.actor is not None:
        query = query.where(AuditRecord.actor == filters.actor)
    if filters.route is not None:
        query = query.where(AuditRecord.route.icontains(filters.route, autoescape=True))
    if filters.target is not None:
        query = query.where(AuditRecord.target == filters.target)
    if filters.since is not None:
        query = query.where(AuditRecord.created_at >= filters.since)
    if filters.until is not None:
        query = query.where(AuditRecord.created_at < filters.until)
    if before is not None:
        query = query.where(AuditRecord.id < before)
    return list(session.scalars(query.order_by(AuditRecord.id.desc()).limit(limit)))


def _change(action: str, row: Base) -> dict[str, Any]:
    """Return one changed row: its id, and the values before and after that may be shown."""
    state = inspect(row)
    before, after = {}, {}
    for name in sorted(COLUMNS.get(row.__tablename__, frozenset())):
        history = state.attrs[name].history
        if action == "deleted":
            before[name] = _value(getattr(row, name))
        elif action == "created" or history.has_changes():
            after[name] = _value(getattr(row, name))
            if action == "changed":
                before[name] = _value(history.deleted[0] if history.deleted else None)
    names = [column.name for column in state.mapper.primary_key]
    identity = "/".join(str(getattr(row, name)) for name in names)
    return {
        "table": row.__tablename__,
        "id": identity,
        "action": action,
        "before": before,
        "after": after,
    }


def _value(value: object) -> object:
    """Return a value as short JSON."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_value(each) for each in value[:MAX_CHANGES]]
    return str(value)[:MAX_VALUE_CHARS]
