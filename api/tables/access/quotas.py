"""Quotas of projects: the operator's, or the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, select
from sqlalchemy.orm import Session

from api.tables import Project, ProjectQuota

DEFAULTS: Mapping[str, int] = {
    "queued_runs": 1000,
    "running_runs": 200,
    "submissions_per_hour": 2000,
    "dataset_bytes": 100 * 10**9,
}
"""Quotas of a project for which the operator has set none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas of a project, by name."""

    limits: Mapping[str, int]
    defaults: frozenset[str]
    """Names of those that the operator has not set."""


def quotas_of(session: Session, project_id: str) -> Quotas:
    """Return the quotas of a project."""
    return _quotas(session.get(ProjectQuota, project_id))


def lock_quotas(session: Session, project_id: str) -> Quotas:
    """Return the quotas, and serialize what they limit until the transaction ends."""
    row = session.connection().execute(_LOCKED, {"project_id": project_id}).one_or_none()
    return _quotas(row)


_LOCKED = (
    select(*(getattr(ProjectQuota, name) for name in DEFAULTS))
    .select_from(Project)
    .outerjoin(ProjectQuota, ProjectQuota.project_id == Project.id)
    .where(Project.id == bindparam("project_id"))
    .with_for_update(of=Project, key_share=True)
)
"""Made once, and of columns: every submission executes it."""


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
