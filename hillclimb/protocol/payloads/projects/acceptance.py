"""Payloads of `hillclimb accept`: evidence, and the checks that the service runs itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class ObservationPayload(Payload):
    """A check and what was seen."""

    name: str
    passed: bool = True
    seen: str
    seconds: float
    remedy: str = ""
    """A sentence for the user; empty for a check that passed."""


class AcceptancePayload(Payload):
    """Evidence that a path works on this installation."""

    object: Literal["acceptance"] = "acceptance"
    id: str
    target: str
    subject: str
    """The GPU, machines or address that was tried."""
    paths: list[str]
    """The experimental paths that need no `experimental` for it, while it is valid."""
    versions: dict[str, str]
    observations: list[ObservationPayload]
    run: str | None
    """Id of the run that was the check; null: the checks were no run, or the caller is no operator.
    """
    cost_usd: float | None
    """Upper bound of the cost; null: unknown."""
    recorded_by: str
    """Who stored it; `an operator` to all but operators."""
    created_at: datetime
    void: str | None
    """Why it is void, such as a version that changed; null: it is valid."""


class AcceptanceList(Payload):
    """All evidence of the installation, by target."""

    object: Literal["list"] = "list"
    data: list[AcceptancePayload]


class ForgottenAcceptances(Payload):
    """The evidence of a target that was deleted."""

    object: Literal["list"] = "list"
    target: str
    forgotten: int
    """Number of deleted rows."""


class ServiceChecks(Payload):
    """The result of a ladder that the service climbed."""

    target: str
    observations: list[ObservationPayload]
    acceptance: AcceptancePayload | None
    """The stored evidence; null: a check failed, and nothing was stored."""
