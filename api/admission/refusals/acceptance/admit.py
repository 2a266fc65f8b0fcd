"""Evidence in specs: each submitted spec gets the part that it may use, and no other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from api.admission.refusals.acceptance.errors import PathNotAccepted
from api.admission.refusals.acceptance.store import rows_of_evidence, why_void
from hillclimb.hardware.estimate import SAMPLES
from hillclimb.spec.preflight.accepted_paths import ACCEPTABLE, AcceptedPath
from hillclimb.spec.rules.experimental_features import experimental_features, refused_features
from hillclimb.spec.run import RunSpec


def accepted_paths(session: Session) -> tuple[AcceptedPath, ...]:
    """Return the paths that this installation has valid evidence of."""
    return accepted_by(rows_of_evidence(session))


def accepted_by(evidence: Iterable[Row[Any]]) -> tuple[AcceptedPath, ...]:
    """Return the paths of which these rows are valid evidence."""
    return tuple(
        AcceptedPath(path=path, subject=row.subject, versions=row.versions, evidence=row.id)
        for row in evidence
        if why_void(row) is None
        for path in row.paths
        if path in ACCEPTABLE
    )


def with_evidence(
    session: Session, spec: RunSpec, accepted: tuple[AcceptedPath, ...] | None = None
) -> RunSpec:
    """Return the spec with the evidence that it may use, in place of any that it came with.

    `accepted` are the installation's paths, where the caller has just read them.

    Raises:
        PathNotAccepted: it uses a path without leave: its evidence is void or forgotten by now.
    """
    if spec.experimental:
        accepted = ()
    elif accepted is None:
        accepted = accepted_paths(session)
    evidence = _of_use(spec, accepted)
    spec = spec.model_copy(update={"accepted": evidence})
    for feature in refused_features(spec):
        raise PathNotAccepted(
            f"{feature.setting} was never run, or the evidence of it is void by now (`hillclimb"
            f" accept show`): {feature.remedy}."
        )
    return spec


def _of_use(spec: RunSpec, accepted: Iterable[AcceptedPath]) -> tuple[AcceptedPath, ...]:
    """Return the evidence of paths that the spec uses, or may turn out to use on its machine."""
    paths: set[str] = {feature.path for feature in experimental_features(spec)}
    if spec.backend.type == "tinker":
        paths |= {"tinker"}
    elif spec.kind in (*SAMPLES, "sft"):
        paths |= {"gpu", "cluster"}
    if spec.environment.provider == "fleet":
        paths |= {"fleet"}
    return tuple(each for each in accepted if each.path in paths)
