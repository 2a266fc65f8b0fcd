"""A run's spec as it was stored: another version may have taken what this one refuses."""

from __future__ import annotations

from pydantic import ValidationError

from api.runs.errors import SpecOutdated
from api.tables import Run
from trainer.contract.problems import explain
from trainer.contract.spec import RunSpec


def spec_of(run: Run) -> RunSpec:
    """Return the run's stored spec. Raises SpecOutdated where this version refuses it."""
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError as error:
        problems = explain(error)
        told = "; ".join(f"{each.pointer or '/'}: {each.message}" for each in problems[:3])
        raise SpecOutdated(
            f"The spec of run {run.id} was stored by another version, and this one refuses it"
            f" ({told}). Submit it again with that mended, and with lineage.resumed_from set to"
            " the run's newest checkpoint if it has one.",
            problems,
        ) from error
