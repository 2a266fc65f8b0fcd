"""The client's methods for evidence of `hillclimb accept`."""

from __future__ import annotations

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.process.acceptance.evidence import AcceptanceEvidence
from hillclimb.process.acceptance.targets import Target
from hillclimb.protocol.payloads.projects.acceptance import (
    AcceptanceList,
    AcceptancePayload,
    ForgottenAcceptances,
    ServiceChecks,
)

PATH = "/v1/acceptance"
CHECKS_TIMEOUT_S = 300.0
"""The service moves a file of 17 MiB to its bucket within one request."""


class Acceptances:
    """Evidence of the installation; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, target: Target | None = None) -> AcceptanceList:
        """Return all evidence, or that of a target."""
        return self._http.get(AcceptanceList, PATH if target is None else _of(target))

    def record(self, evidence: AcceptanceEvidence) -> AcceptancePayload:
        """Store evidence in place of earlier evidence of the same target and subject."""
        body = evidence.model_dump(mode="json")
        return self._http.request(AcceptancePayload, "POST", PATH, json=body)

    def run_service_checks(self, target: Target, *, channel: str | None = None) -> ServiceChecks:
        """Let the service check its own bucket (s3) or bot (slack), and store the evidence."""
        return self._http.request(
            ServiceChecks,
            "POST",
            f"{_of(target)}/checks",
            json={"channel": channel},
            timeout=CHECKS_TIMEOUT_S,
        )

    def forget(self, target: Target) -> ForgottenAcceptances:
        """Delete the evidence of a target."""
        return self._http.request(ForgottenAcceptances, "DELETE", _of(target))


def _of(target: Target) -> str:
    return f"{PATH}/{quoted(target)}"
