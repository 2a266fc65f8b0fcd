"""The client's methods for the project's secrets."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.projects.secrets import (
    DeletedSecret,
    ReencryptedSecrets,
    SecretList,
    SecretPayload,
)

PATH = "/v1/secrets"


class Secrets:
    """Secrets of the project, which no method returns; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> SecretList:
        """Return names and dates of the secrets."""
        return self._http.get(SecretList, PATH)

    def set(self, name: str, value: str, *, hosts: Sequence[str] | None = None) -> SecretPayload:
        """Create a secret, or replace its value.

        `hosts` are the servers to which specs may send it; None keeps them.
        """
        body = {"value": value, "hosts": None if hosts is None else [*hosts]}
        return self._http.request(SecretPayload, "PUT", _of(name), json=body)

    def delete(self, name: str) -> DeletedSecret:
        """Delete a secret that no live run names."""
        return self._http.request(DeletedSecret, "DELETE", _of(name))

    def reencrypt(self) -> ReencryptedSecrets:
        """Encrypt with the newest master key what an older one encrypted."""
        return self._http.request(ReencryptedSecrets, "POST", f"{PATH}/reencrypt")


def _of(name: str) -> str:
    return f"{PATH}/{quoted(name)}"
