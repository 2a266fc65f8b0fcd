"""The client's methods for datasets; reached as `client.datasets`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from hillclimb.client.paths import quoted

Json = dict[str, Any]
MAX_IN_QUERY = 2000
"""Characters of options that go into the address."""
UPLOAD_TIMEOUT = httpx.Timeout(1020.0, connect=5.0)
"""Of requests that the service works on: longer than it gives itself by default, three rounds of
30 s in the queue and 300 s of work."""


class Datasets:
    """Datasets of the key's project; raises what `Client` does.

    A version is named by its number, or `latest`.
    """

    def __init__(
        self, call: Callable[..., Json], download: Callable[[str], Iterator[bytes]]
    ) -> None:
        self._call = call
        self._download = download

    def create(
        self,
        name: str,
        file: Path | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Json:
        """Create a version from a file, or from the `source` in the options.

        Returns the version; the one made before when tasks and options are the same.
        """
        options_json = json.dumps(options or {})
        request: dict[str, Any] = {
            "headers": {"Idempotency-Key": idempotency_key or uuid.uuid4().hex},
            "timeout": UPLOAD_TIMEOUT,
        }
        path = f"{_of(name)}/versions"
        if file is None:
            form = {"options": ("options.json", options_json.encode())}
            return self._call("POST", path, files=form, **request)
        with file.open("rb") as tasks:
            if len(options_json) <= MAX_IN_QUERY:
                # The plain body costs the service less than a form.
                return self._call(
                    "POST", path, params={"options": options_json}, content=tasks, **request
                )
            parts: dict[str, Any] = {
                "options": ("options.json", options_json.encode()),
                "tasks": (file.name, tasks),
            }
            return self._call("POST", path, files=parts, **request)

    def list(self, **page: str | int | None) -> Json:
        """Return one page of datasets, newest first, each with its newest version."""
        return self._call("GET", "/v1/datasets", params=_parameters(page))

    def get(self, name: str) -> Json:
        """Return one dataset."""
        return self._call("GET", _of(name))

    def versions(self, name: str, **page: int | None) -> Json:
        """Return one page of versions, newest first."""
        return self._call("GET", f"{_of(name)}/versions", params=_parameters(page))

    def version(self, name: str, number: int | str = "latest") -> Json:
        """Return one version whole: environments, options, duplicates, lint."""
        return self._call("GET", _of(name, number))

    def tasks(self, name: str, number: int | str = "latest", **filters: str | int | None) -> Json:
        """Return one page of tasks, by key: filters are `env`, `split` and `search`."""
        path = f"{_of(name, number)}/tasks"
        return self._call("GET", path, params=_parameters(filters))

    def task(self, name: str, key: str, number: int | str = "latest") -> Json:
        """Return one task whole."""
        return self._call("GET", f"{_of(name, number)}/tasks/{quoted(key)}")

    def file(self, name: str, file: str, number: int | str = "latest") -> Iterator[bytes]:
        """Yield the bytes of the file `tasks` or `split`: JSON lines, compressed by gzip."""
        return self._download(f"{_of(name, number)}/files/{file}")

    def diff(
        self, name: str, base: int, number: int | str = "latest", *, base_name: str | None = None
    ) -> Json:
        """Return what changed from version `base` to another one."""
        return self._call(
            "GET",
            f"{_of(name, number)}/diff",
            params=_parameters({"base": base, "base_name": base_name}),
            timeout=UPLOAD_TIMEOUT,
        )

    def lint(
        self, name: str, number: int | str = "latest", options: Mapping[str, Any] | None = None
    ) -> Json:
        """Return what lint finds under these options, errors first."""
        path = f"{_of(name, number)}/lint"
        return self._call("POST", path, json=dict(options or {}), timeout=UPLOAD_TIMEOUT)

    def exclusions(self, name: str, *, also_past: bool = False) -> Json:
        """Return what is kept out now, or ever was."""
        params = {"all": "true"} if also_past else {}
        return self._call("GET", f"{_of(name)}/exclusions", params=params)

    def exclude(self, name: str, exclusions: Iterable[Mapping[str, Any]]) -> Json:
        """Keep tasks or environments out: `scope`, `key`, `reason`, and an end for a quarantine."""
        body = {"exclusions": [dict(each) for each in exclusions]}
        return self._call("POST", f"{_of(name)}/exclusions", json=body)

    def include(self, name: str, exclusion_id: str) -> Json:
        """Remove an exclusion."""
        return self._call("DELETE", f"{_of(name)}/exclusions/{quoted(exclusion_id)}")


def _of(name: str, number: int | str | None = None) -> str:
    """Return the path of a dataset or of one of its versions; a name cannot leave its place."""
    path = f"/v1/datasets/{quoted(name)}"
    return path if number is None else f"{path}/versions/{quoted(str(number))}"


def _parameters(values: Mapping[str, str | int | None]) -> dict[str, str | int]:
    return {name: value for name, value in values.items() if value is not None}
