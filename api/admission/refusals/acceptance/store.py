"""Evidence of `hillclimb accept`: stored, listed with why it is void, forgotten.

It applies to all projects: the installation is what was tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from api.admission.refusals.acceptance.errors import AcceptanceRejected
from api.runs.status import RunStatus
from api.tables import Acceptance, Run
from api.tables.ids import new_id
from hillclimb.process.acceptance.evidence import AcceptanceEvidence
from hillclimb.process.acceptance.targets import Target, versions_that_matter
from hillclimb.process.code_revision import code_revision
from hillclimb.spec.preflight.accepted_paths import first_change

_OF_THE_SERVICE = ("skypilot", "botocore")
"""Libraries of this process whose versions matter for some target."""


def record(
    session: Session, evidence: AcceptanceEvidence, *, actor: str, now: datetime
) -> Acceptance:
    """Store evidence in place of earlier evidence of the same target and subject.

    Raises:
        AcceptanceRejected: it names a run that is not there, or did not succeed.
    """
    if evidence.run is not None:
        run = session.get(Run, evidence.run)
        if run is None or run.status != RunStatus.SUCCEEDED.value:
            state = "is not there" if run is None else f"is {run.status}"
            raise AcceptanceRejected(
                f"Run {evidence.run} {state}, so it proves nothing: run `hillclimb accept"
                f" {evidence.target}` again."
            )
    for earlier in list_evidence(session, evidence.target):
        if earlier.subject == evidence.subject:
            session.delete(earlier)
    session.flush()
    row = Acceptance(
        id=new_id("acc"),
        target=evidence.target,
        subject=evidence.subject,
        paths=list(evidence.paths),
        versions=evidence.versions | _own_libraries(evidence.target),
        observations=[each.model_dump(mode="json") for each in evidence.observations],
        run=evidence.run,
        cost_usd=evidence.cost_usd,
        recorded_by=actor,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row


def _own_libraries(target: Target) -> dict[str, str]:
    """Return the versions of this process's libraries that matter for a target."""
    names = set(versions_that_matter(target)) & set(_OF_THE_SERVICE)
    return {name: number for name, number in present_versions().items() if name in names}


def list_evidence(session: Session, target: Target | None = None) -> Sequence[Acceptance]:
    """Return all evidence, or that of a target, by target and time."""
    query = select(Acceptance).order_by(*EVIDENCE_ORDER)
    if target is not None:
        query = query.where(Acceptance.target == target)
    return session.scalars(query).all()


def rows_of_evidence(session: Session) -> Sequence[Row[Any]]:
    """Return what decides of all evidence, in the order of `list_evidence`.

    Columns: an object of the ORM for each row takes twice the CPU time.
    """
    return session.connection().execute(_ROWS).all()


EVIDENCE = tuple(
    Acceptance.__table__.c[name] for name in ("id", "target", "subject", "paths", "versions")
)
"""Columns that decide what a spec may use."""
EVIDENCE_ORDER = (Acceptance.target, Acceptance.created_at, Acceptance.id)
_ROWS: Select[Any] = select(*EVIDENCE).order_by(*EVIDENCE_ORDER)


def forget(session: Session, target: Target) -> int:
    """Delete the evidence of a target and return the number of rows."""
    rows = list_evidence(session, target)
    for row in rows:
        session.delete(row)
    return len(rows)


def why_void(row: Acceptance | Row[Any]) -> str | None:
    """Return the first version that matters and has changed, as a clause; None: it is valid.

    The service knows the product's version and its own libraries'; the trainer compares the
    others on its machine.
    """
    names = versions_that_matter(cast("Target", row.target))
    return first_change(names, row.versions, present_versions())


def void_warnings(session: Session) -> tuple[str, ...]:
    """Return a sentence and its remedy for each target whose evidence is void; no addresses."""
    causes = {row.target: cause for row in list_evidence(session) if (cause := why_void(row))}
    return tuple(
        f"The evidence of {target} is void: {cause}. Run `hillclimb accept {target}` again, or"
        f" delete it (`hillclimb accept {target} --forget`)."
        for target, cause in causes.items()
    )


def present_versions() -> dict[str, str]:
    """Return the versions that this process knows."""
    versions = {"hillclimb": code_revision().package_version}
    for name in _OF_THE_SERVICE:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a service that rents nothing has no SkyPilot
            continue
    return versions
