"""Applies the defaults of a project, and then those of the operator, to submitted specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.admission.refusals.acceptance.admit import accepted_paths
from api.runs.errors import DefaultsMisfit
from api.tables.access.defaults import stored_defaults
from hillclimb.protocol.spec_problems import explain
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


def with_defaults(
    session: Session, spec: RunSpec, project_id: str, operator: DefaultValues
) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the spec with the project's and the operator's defaults, and the keys that they set.

    Raises DefaultsMisfit for a spec that is valid without them alone.
    """
    written = spec.model_dump(mode="json", exclude_unset=True)
    applied = document_with_defaults(session, written, project_id, operator)
    if not applied.keys:
        return spec, ()
    try:
        context = {"accepted": accepted_paths(session)}
        return RunSpec.model_validate(applied.document, context=context), applied.keys
    except ValidationError as error:
        problem = explain(error)[0]
        raise DefaultsMisfit(
            f"The spec is valid, but not with the defaults ({', '.join(applied.keys)}):"
            f" {problem.pointer or '/'}: {problem.message}. Set the key in the spec (null: none),"
            " or change `hillclimb project defaults`."
        ) from error
