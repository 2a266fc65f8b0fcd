"""The client's methods for the ledger of issues."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.studies.issues import IssueLedger, IssueList, IssuePayload

PATH = "/v1/issues"


class Issues:
    """Issues of the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self, issue: Mapping[str, JsonValue], *, idempotency_key: str | None = None
    ) -> IssuePayload:
        """Create an issue (keys: docs/issues.md); the same key returns the same issue again."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._http.request(IssuePayload, "POST", PATH, json=dict(issue), headers=headers)

    def list(
        self,
        *,
        state: str | None = None,
        severity: str | None = None,
        env: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> IssueList:
        """Return one page of issues, newest first, older than the issue `before`.

        `state` is `open`, `closed` or `all` (the default).
        """
        query = {"state": state, "severity": severity, "env": env, "before": before}
        return self._http.get(IssueList, PATH, {**query, "limit": limit})

    def get(self, issue_id: str) -> IssuePayload:
        """Return an issue with its figures."""
        return self._http.get(IssuePayload, _of(issue_id))

    def change(self, issue_id: str, changes: Mapping[str, JsonValue]) -> IssuePayload:
        """Change the keys of `changes`; an issue that is closed is refused."""
        return self._http.request(IssuePayload, "PATCH", _of(issue_id), json=dict(changes))

    def close(self, issue_id: str, *, resolution: str = "") -> IssuePayload:
        """Close an issue with a sentence on what ended it."""
        body = {"resolution": resolution}
        return self._http.request(IssuePayload, "POST", _of(issue_id, "close"), json=body)

    def ledger(
        self, *, state: str | None = None, severity: str | None = None, env: str | None = None
    ) -> IssueLedger:
        """Return the newest 200 issues as Markdown tables, by severity."""
        query = {"state": state, "severity": severity, "env": env}
        return self._http.get(IssueLedger, f"{PATH}/ledger", query)


def _of(issue_id: str, *parts: str) -> str:
    return "/".join((PATH, quoted(issue_id), *parts))
