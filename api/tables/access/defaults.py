"""The defaults of projects: what a submitted spec gets where it leaves a key out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables.projects import ProjectDefaultsRecord


def find_defaults(session: Session, project_id: str) -> ProjectDefaultsRecord | None:
    """Return the project's defaults; None where it never had any."""
    return session.get(ProjectDefaultsRecord, project_id, populate_existing=True)


def stored_defaults(session: Session, project_id: str) -> Mapping[str, Any]:
    """Return the values of the project's defaults; none where it never had any."""
    stored = session.connection().execute(_VALUES, {"project_id": project_id}).scalar()
    return stored or {}


_VALUES = select(ProjectDefaultsRecord.defaults).where(
    ProjectDefaultsRecord.project_id == bindparam("project_id")
)
"""Made once: every submission executes it."""


def replace_defaults(
    session: Session, project_id: str, defaults: dict[str, Any], *, actor: str, now: datetime
) -> ProjectDefaultsRecord:
    """Replace the project's defaults as a whole."""
    values = {"defaults": defaults, "updated_at": now, "updated_by": actor}
    statement = insert(ProjectDefaultsRecord).values(project_id=project_id, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["project_id"], set_=values))
    return session.get_one(ProjectDefaultsRecord, project_id, populate_existing=True)
