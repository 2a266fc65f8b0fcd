"""Reads the history of a W&B run over the public API, as `wandb.Api` does: GraphQL over HTTPS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from hillclimb.client.errors import ImportSourceError
from hillclimb.spec.hosts import is_loopback

ADDRESS = "https://api.wandb.ai"
PAGE_STEPS = 1_000
"""Steps per request."""
MAX_STEP = 10_000_000
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
RUN_QUERY = """
query Run($project: String!, $entity: String!, $name: String!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { displayName historyKeys }
  }
}
"""
HISTORY_QUERY = """
query HistoryPage($project: String!, $entity: String!, $name: String!,
                  $minStep: Int64!, $maxStep: Int64!, $pageSize: Int!) {
  project(name: $project, entityName: $entity) {
    run(name: $name) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
  }
}
"""


@dataclass(slots=True)
class WandbRun:
    """A run on a W&B server, which `key` may read."""

    entity: str
    project: str
    run_id: str
    key: str = field(repr=False)
    address: str = ADDRESS
    _http: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.address)
        if url.scheme != "https" and not is_loopback(self.address):
            raise ImportSourceError(
                f"the key would travel in the clear to {self.address}: use an https address"
            )
        self._http = httpx.Client(
            base_url=self.address, auth=("api", self.key), timeout=TIMEOUT, follow_redirects=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def name_and_last_step(self) -> tuple[str, int]:
        """Return the run's name for people, and the last step of its history; -1 without one.

        Raises:
            ImportSourceError: the server does not respond, refuses the key, or has no such run.
        """
        run = self._run(RUN_QUERY, {})
        keys = run.get("historyKeys") or {}
        last = keys.get("lastStep", -1) if isinstance(keys, dict) else -1
        return str(run.get("displayName") or self.run_id), last if isinstance(last, int) else -1

    def rows(self, *, last_step: int) -> Iterator[dict[str, object]]:
        """Yield every row of the history up to a step, a page after the other.

        Raises:
            ImportSourceError: as `name_and_last_step`.
        """
        for start in range(0, min(last_step, MAX_STEP) + 1, PAGE_STEPS):
            page = {"minStep": start, "maxStep": start + PAGE_STEPS, "pageSize": PAGE_STEPS}
            for line in self._run(HISTORY_QUERY, page).get("history") or ():
                try:
                    row = json.loads(line)
                except (TypeError, ValueError, RecursionError) as error:
                    raise ImportSourceError(f"{self.address} sent a row that is no JSON") from error
                if isinstance(row, dict):
                    yield row

    def _run(self, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
        named = {"entity": self.entity, "project": self.project, "name": self.run_id}
        body = {"query": query, "variables": {**named, **variables}}
        try:
            response = self._http.post("/graphql", json=body)
        except httpx.HTTPError as error:
            raise ImportSourceError(f"{self.address} does not respond: {error}") from error
        if response.status_code in (401, 403):
            raise ImportSourceError(f"{self.address} refuses the key in WANDB_API_KEY")
        if not response.is_success:
            raise ImportSourceError(f"{self.address} responded with {response.status_code}")
        try:
            answer = response.json()
            run = ((answer.get("data") or {}).get("project") or {}).get("run")
        except (ValueError, AttributeError) as error:
            raise ImportSourceError(f"the response of {self.address} is not W&B's") from error
        if answer.get("errors"):
            raise ImportSourceError(f"{self.address}: {_message(answer['errors'])}")
        if not isinstance(run, dict):
            raise ImportSourceError(
                f"{self.address} has no run {self.entity}/{self.project}/{self.run_id} that this"
                " key may read"
            )
        return run


def _message(errors: object) -> str:
    first = errors[0] if isinstance(errors, list) and errors else errors
    text = first.get("message") if isinstance(first, dict) else first
    return str(text)[:300]
