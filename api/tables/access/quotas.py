"""Quotas of projects: the operator's, or the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, Row, bindparam, cast, func, select
from sqlalchemy.orm import Session

from api.tables import Project, ProjectQuota
from api.tables.ids import lock_key

DEFAULTS: Mapping[str, int] = {
    "queued_runs": 1000,
    "running_runs": 200,
    "submissions_per_hour": 2000,
    "dataset_bytes": 100 * 10**9,
}
"""Quotas of a project for which the operator has set none."""


LOCK_SPACE = 0x51554F54
"""First key of the advisory lock under which submissions to a project are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas of a project, by name."""

    limits: Mapping[str, int]
    defaults: frozenset[str]
    """Names of those that the operator has not set."""


def quotas_of(session: Session, project_id: str) -> Quotas:
    """Return the quotas of a project."""
    return _quotas(session.get(ProjectQuota, project_id))


def lock_uploads(session: Session, project_id: str) -> Quotas:
    """Return the quotas, and serialize the uploads that they limit until the transaction ends."""
    statement = _OF_PROJECT.with_for_update(of=Project, key_share=True)
    row = session.connection().execute(statement, {"project_id": project_id}).one_or_none()
    return _quotas(row)


def lock_submissions(session: Session, project_id: str, *, is_alone: bool) -> tuple[Quotas, int]:
    """Return the quotas, and how many transactions this database can have at once.

    Until this transaction ends no other one submits to the project if it is alone; else those do
    that are not alone either. The project is not deleted meanwhile.
    """
    statement = _ALONE if is_alone else _BESIDE_OTHERS
    facts = {"project_id": project_id, "key": lock_key(project_id)}
    row = session.connection().execute(statement, facts).one_or_none()
    return _quotas(row), row.most_transactions if row is not None else 0


_OF_PROJECT = (
    select(*(getattr(ProjectQuota, name) for name in DEFAULTS))
    .select_from(Project)
    .outerjoin(ProjectQuota, ProjectQuota.project_id == Project.id)
    .where(Project.id == bindparam("project_id"))
)
_ALONE, _BESIDE_OTHERS = (
    _OF_PROJECT.add_columns(
        cast(func.current_setting("max_connections"), Integer).label("most_transactions"),
        lock(LOCK_SPACE, bindparam("key")),
    ).with_for_update(of=Project, read=True, key_share=True)
    for lock in (func.pg_advisory_xact_lock, func.pg_advisory_xact_lock_shared)
)
"""Made once, and of columns: every submission executes one of them."""


def _quotas(row: ProjectQuota | Row[Any] | None) -> Quotas:
    own = {name: getattr(row, name) for name in DEFAULTS} if row is not None else {}
    chosen = {name: limit for name, limit in own.items() if limit is not None}
    return Quotas(limits={**DEFAULTS, **chosen}, defaults=frozenset(DEFAULTS) - chosen.keys())


def set_quotas(
    session: Session, project_id: str, limits: Mapping[str, int | None], *, actor: str
) -> None:
    """Replace the quotas of a project; null is the default."""
    row = session.get(ProjectQuota, project_id)
    if row is None:
        row = ProjectQuota(project_id=project_id)
        session.add(row)
    for name in DEFAULTS:
        setattr(row, name, limits[name])
    row.set_by = actor
    session.flush()
