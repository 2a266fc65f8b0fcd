"""The evidence that a ladder leaves, as a client sends it to the service."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hillclimb.process.acceptance.targets import FACTS, Target
from hillclimb.spec.preflight.accepted_paths import AcceptablePath, Versions
from hillclimb.spec.section import Section

_Text = Annotated[str, Field(max_length=500)]


class PassedCheck(Section):
    """A check that passed, and what was seen."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    """The check."""
    seen: _Text
    """What was seen, without secrets."""
    seconds: Annotated[float, Field(ge=0.0, le=86_400.0)]
    """How long it took."""


class AcceptanceEvidence(Section):
    """Evidence of one target: every check of its ladder, passed."""

    target: Target
    """The target of `hillclimb accept`."""
    subject: Annotated[str, Field(min_length=1, max_length=300)]
    """The GPU, machines or address that was tried."""
    paths: Annotated[tuple[AcceptablePath, ...], Field(max_length=16)] = ()
    """The experimental paths that the checks used."""
    versions: Versions
    """Versions of the product, its libraries and the peer."""
    observations: Annotated[tuple[PassedCheck, ...], Field(min_length=1, max_length=32)]
    """The checks, in order."""
    run: Annotated[str, Field(max_length=64)] | None = None
    """Id of the run that was the check."""
    cost_usd: Annotated[float, Field(ge=0.0, le=1e6)] | None = None
    """Upper bound of the cost; null: unknown."""

    @model_validator(mode="after")
    def _is_of_its_target(self) -> Self:
        facts = FACTS[self.target]
        names = tuple(each.name for each in self.observations)
        if names != facts.checks:
            raise ValueError(
                f"evidence of {self.target} has the checks {', '.join(facts.checks)} in this"
                " order, each passed: run `hillclimb accept` again with this version"
            )
        foreign = sorted(set(self.paths) - set(facts.lifts))
        if foreign:
            raise ValueError(f"{self.target} is no evidence of {foreign[0]}")
        if "hillclimb" not in self.versions:
            raise ValueError("versions has no `hillclimb`: send the product's version")
        return self
