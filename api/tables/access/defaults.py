"""The defaults of projects: what a submitted spec gets where it leaves a key out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables.projects import ProjectDefaultsRecord


def find_defaults(session: Session, project_id: str) -> ProjectDefaultsRecord | None:
    """Return the project's defaults; None where it never had any."""
    return session.get(ProjectDefaultsRecord, project_id, populate_existing=True)


def replace_defaults(
    session: Session, project_id: str, defaults: dict[str, Any], *, actor: str, now: datetime
) -> ProjectDefaultsRecord:
    """Replace the project's defaults as a whole."""
    values = {"defaults": defaults, "updated_at": now, "updated_by": actor}
    statement = insert(ProjectDefaultsRecord).values(project_id=project_id, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["project_id"], set_=values))
    return session.get_one(ProjectDefaultsRecord, project_id, populate_existing=True)
