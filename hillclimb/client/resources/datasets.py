"""The client's methods for datasets; reached as `client.datasets`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from hillclimb.client.http import Http, without_none
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.datasets.diffs import DiffPayload
from hillclimb.protocol.payloads.datasets.exclusions import ExclusionList, RemovedExclusion
from hillclimb.protocol.payloads.datasets.lint import FindingList
from hillclimb.protocol.payloads.datasets.tasks import TaskList, TaskPayload
from hillclimb.protocol.payloads.datasets.versions import (
    DatasetList,
    DatasetPayload,
    VersionList,
    VersionPayload,
)

MAX_IN_QUERY = 2000
"""Longest options, in characters, that are sent as a query parameter."""
UPLOAD_TIMEOUT = httpx.Timeout(1020.0, connect=5.0)
"""Of requests that take the service long. Its default limit is shorter: three rounds of 30 s in the
queue and 300 s of work."""


class Datasets:
    """Datasets of the key's project; raises what `Client` does.

    A version is named by its number, or `latest`.
    """

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        name: str,
        file: Path | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> VersionPayload:
        """Create a version from a file, or from the `source` in the options.

        Returns the version; an earlier one if its tasks and options are the same.
        """
        options_json = json.dumps(options or {})
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        parts: dict[str, Any] = {"options": ("options.json", options_json.encode())}
        if file is None:
            return self._create(name, headers, files=parts)
        with file.open("rb") as tasks:
            if len(options_json) <= MAX_IN_QUERY:
                # A plain body costs the service less than a form.
                params = {"options": options_json}
                return self._create(name, headers, params=params, content=tasks)
            return self._create(name, headers, files={**parts, "tasks": (file.name, tasks)})

    def _create(self, name: str, headers: Mapping[str, str], **options: Any) -> VersionPayload:
        return self._http.request(
            VersionPayload,
            "POST",
            f"{_of(name)}/versions",
            headers=headers,
            timeout=UPLOAD_TIMEOUT,
            **options,
        )

    def list(self, /, **page: str | int | None) -> DatasetList:
        """Return one page of datasets, newest first, each with its newest version."""
        return self._http.get(DatasetList, "/v1/datasets", page)

    def get(self, name: str) -> DatasetPayload:
        """Return one dataset."""
        return self._http.get(DatasetPayload, _of(name))

    def versions(self, /, name: str, **page: int | None) -> VersionList:
        """Return one page of versions, newest first."""
        return self._http.get(VersionList, f"{_of(name)}/versions", page)

    def version(self, name: str, number: int | str = "latest") -> VersionPayload:
        """Return one version in full: environments, options, duplicates, lint."""
        return self._http.get(VersionPayload, _of(name, number))

    def annotate(self, name: str, number: int | str = "latest", *, note: str) -> VersionPayload:
        """Replace the note of a version; an empty one removes it."""
        return self._http.request(VersionPayload, "PATCH", _of(name, number), json={"note": note})

    def tasks(
        self, /, name: str, number: int | str = "latest", **filters: str | int | None
    ) -> TaskList:
        """Return one page of tasks, by key: filters are `env`, `split` and `search`."""
        return self._http.get(TaskList, f"{_of(name, number)}/tasks", filters)

    def task(self, name: str, key: str, number: int | str = "latest") -> TaskPayload:
        """Return one task in full."""
        return self._http.get(TaskPayload, f"{_of(name, number)}/tasks/{quoted(key)}")

    def file(self, name: str, file: str, number: int | str = "latest") -> Iterator[bytes]:
        """Yield the bytes of the file `tasks` or `split`: JSON lines, compressed by gzip."""
        return self._http.file(f"{_of(name, number)}/files/{file}")

    def diff(
        self, name: str, base: int, number: int | str = "latest", *, base_name: str | None = None
    ) -> DiffPayload:
        """Return the differences between version `base` and another one."""
        return self._http.request(
            DiffPayload,
            "GET",
            f"{_of(name, number)}/diff",
            params=without_none({"base": base, "base_name": base_name}),
            timeout=UPLOAD_TIMEOUT,
        )

    def lint(
        self, name: str, number: int | str = "latest", options: Mapping[str, Any] | None = None
    ) -> FindingList:
        """Return the findings of lint under these options, errors first."""
        return self._http.request(
            FindingList,
            "POST",
            f"{_of(name, number)}/lint",
            json=dict(options or {}),
            timeout=UPLOAD_TIMEOUT,
        )

    def exclusions(self, name: str, *, also_past: bool = False) -> ExclusionList:
        """Return the exclusions in force, or also the expired ones."""
        params = {"all": "true"} if also_past else {}
        return self._http.get(ExclusionList, f"{_of(name)}/exclusions", params)

    def exclude(self, name: str, exclusions: Iterable[Mapping[str, Any]]) -> ExclusionList:
        """Exclude tasks or environments: `scope`, `key`, `reason`, optionally `expires_at`."""
        body = {"exclusions": [dict(exclusion) for exclusion in exclusions]}
        return self._http.request(ExclusionList, "POST", f"{_of(name)}/exclusions", json=body)

    def include(self, name: str, exclusion_id: str) -> RemovedExclusion:
        """Remove an exclusion."""
        path = f"{_of(name)}/exclusions/{quoted(exclusion_id)}"
        return self._http.request(RemovedExclusion, "DELETE", path)


def _of(name: str, number: int | str | None = None) -> str:
    """Return the path of a dataset, or of one of its versions."""
    path = f"/v1/datasets/{quoted(name)}"
    return path if number is None else f"{path}/versions/{quoted(str(number))}"
