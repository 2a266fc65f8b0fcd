"""Applies the defaults of a project, and then those of the operator, to submitted specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import bindparam, select, true
from sqlalchemy.orm import Session

from api.admission.refusals.acceptance.admit import accepted_by
from api.admission.refusals.acceptance.store import EVIDENCE, EVIDENCE_ORDER
from api.runs.errors import DefaultsMisfit
from api.tables import Acceptance, Project
from api.tables.access.defaults import stored_defaults
from api.tables.projects import ProjectDefaultsRecord
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.rules.project_defaults import (
    Applied,
    DefaultValues,
    ProjectDefaults,
    apply_defaults,
)
from hillclimb.spec.run import RunSpec


def defaults_of(session: Session, project_id: str) -> ProjectDefaults:
    """Return the defaults of a project; those of an earlier version lose keys that are gone."""
    stored = stored_defaults(session, project_id)
    return ProjectDefaults.model_validate(stored, extra="ignore")


def document_with_defaults(
    session: Session, document: Mapping[str, Any], project_id: str, operator: DefaultValues
) -> Applied:
    """Return a spec as its user wrote it with the defaults of the keys that it leaves out."""
    return apply_defaults(document, defaults_of(session, project_id), operator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of every spec of a project: its defaults, and the evidence of the service."""

    defaults: ProjectDefaults
    accepted: tuple[AcceptedPath, ...]


def terms_of(session: Session, project_id: str) -> Terms:
    """Return the terms of the project; every submission begins with this statement."""
    rows = session.connection().execute(_TERMS, {"project_id": project_id}).all()
    stored = rows[0].defaults if rows else None
    return Terms(
        defaults=ProjectDefaults.model_validate(stored or {}, extra="ignore"),
        accepted=accepted_by(row for row in rows if row.id is not None),
    )


_TERMS = (
    select(ProjectDefaultsRecord.defaults, *EVIDENCE)
    .select_from(Project)
    .outerjoin(ProjectDefaultsRecord, ProjectDefaultsRecord.project_id == Project.id)
    .outerjoin(Acceptance, true())
    .where(Project.id == bindparam("project_id"))
    .order_by(*EVIDENCE_ORDER)
)


def with_defaults(
    spec: RunSpec, terms: Terms, operator: DefaultValues
) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec with the project's and the operator's defaults, and the keys that they set.

    Raises DefaultsMisfit for a spec that is valid without them alone.
    """
    written = spec.model_dump(mode="json", exclude_unset=True)
    applied = apply_defaults(written, terms.defaults, operator)
    if not applied.keys:
        return spec, ()
    try:
        context = {"accepted": terms.accepted}
        return RunSpec.model_validate(applied.document, context=context), applied.keys
    except ValidationError as error:
        problem = explain(error)[0]
        raise DefaultsMisfit(
            f"The spec is valid, but not with the defaults ({', '.join(applied.keys)}):"
            f" {problem.pointer or '/'}: {problem.message}. Set the key in the spec (null: none),"
            " or change `hillclimb project defaults`."
        ) from error
