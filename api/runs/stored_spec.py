"""Parses the stored spec of a run: another version may have accepted what this one rejects."""

from __future__ import annotations

from pydantic import ValidationError

from api.runs.errors import SpecOutdated
from api.tables import Run
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.run import RunSpec


def spec_of(run: Run) -> RunSpec:
    """Return the run's stored spec. Raises SpecOutdated where this version rejects it."""
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError as error:
        problems = explain(error)
        causes = "; ".join(f"{each.pointer or '/'}: {each.message}" for each in problems[:3])
        raise SpecOutdated(
            f"The spec of run {run.id} was stored by another version, and this one rejects it"
            f" ({causes}). Submit it again with that fixed, and with lineage.resumed_from set to"
            " the run's newest checkpoint if it has one.",
            problems,
        ) from error
