"""The backend section of a run spec: where the trainer runs."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from trainer.contract.clusters.spec import SkyPilotSpec
from trainer.contract.section import Section


class BackendSpec(Section):
    """Where the trainer runs."""

    type: Literal["runner", "skypilot"] = "runner"
    """`runner`: a machine that runs `hillclimb runner`; the embedded stack has one. `skypilot`: a
    cluster rented for the attempt, and given back at its end (docs/clusters.md)."""
    skypilot: SkyPilotSpec | None = None
    """The machines of the type `skypilot`."""

    @model_validator(mode="after")
    def _sections_are_of_the_type(self) -> Self:
        if self.skypilot is not None and self.type != "skypilot":
            raise ValueError(
                f"backend.skypilot is read by the type skypilot, and this is {self.type}: set"
                " backend.type to skypilot or leave the section out"
            )
        if self.skypilot is None and self.type == "skypilot":
            raise ValueError(
                "backend.type skypilot needs backend.skypilot.candidates: say which machines will"
                " do"
            )
        return self
