"""The client's methods for the project's defaults."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.client.http import Http
from hillclimb.protocol.payloads.projects.defaults import ProjectDefaultsPayload

PATH = "/v1/project/defaults"


class Defaults:
    """Defaults of the project's specs; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self) -> ProjectDefaultsPayload:
        """Return the defaults."""
        return self._http.get(ProjectDefaultsPayload, PATH)

    def replace(self, defaults: Mapping[str, JsonValue]) -> ProjectDefaultsPayload:
        """Replace all defaults (keys: docs/secrets.md)."""
        return self._http.request(ProjectDefaultsPayload, "PUT", PATH, json=dict(defaults))
