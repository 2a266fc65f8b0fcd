"""The section `backend`: the machine of the trainer, or the Tinker server that computes for it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from hillclimb.spec.backend.skypilot import SkyPilotSpec
from hillclimb.spec.backend.tinker import TinkerSpec
from hillclimb.spec.section import Section


class BackendSpec(Section):
    """Machine of the trainer: a runner, a rented cluster, or a runner with a Tinker server."""

    type: Literal["runner", "skypilot", "tinker"] = "runner"
    """`runner`: a machine that runs a runner (docs/deploy.md); the embedded stack has one.
    `skypilot`: a cluster rented for the attempt and terminated at its end (docs/clusters.md).
    `tinker`: the loop and the rollouts on such a runner, without a GPU; sampling, gradients and
    weights on a server of the Tinker protocol (docs/tinker.md)."""
    skypilot: SkyPilotSpec | None = None
    """The machines of the type `skypilot`."""
    tinker: TinkerSpec | None = None
    """The server and model of the type `tinker`; null takes the defaults."""

    @model_validator(mode="after")
    def _sections_are_of_the_type(self) -> Self:
        for name in ("skypilot", "tinker"):
            if getattr(self, name) is not None and self.type != name:
                raise ValueError(
                    f"backend.{name} is read by the type {name}, and this is {self.type}: set"
                    f" backend.type to {name} or leave the section out"
                )
        if self.skypilot is None and self.type == "skypilot":
            raise ValueError(
                "backend.type skypilot needs backend.skypilot.candidates: list the machines that"
                " the run may use"
            )
        return self

    @property
    def tinker_server(self) -> TinkerSpec | None:
        """Settings of the Tinker server; None if the run uses none."""
        return (self.tinker or TinkerSpec()) if self.type == "tinker" else None
