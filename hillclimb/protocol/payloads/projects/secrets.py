"""Payloads of secrets: names and dates; no payload of the service has a value."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class SecretPayload(Payload):
    """A secret of the project, without its value."""

    object: Literal["secret"] = "secret"
    name: str
    version: int
    """Number of the value: 1 is the first."""
    hosts: list[str]
    """Servers to which a spec may send it; none: only the platform that its variable is named for.
    """
    key_id: str
    """The master key that encrypts it."""
    created_by: str
    created_at: datetime
    updated_by: str
    updated_at: datetime
    used_at: datetime | None
    """When an attempt last received it; null: never."""


class SecretList(Payload):
    """All secrets of the project, by name."""

    object: Literal["list"] = "list"
    data: list[SecretPayload]


class DeletedSecret(Payload):
    """A secret that was deleted."""

    name: str
    deleted: bool


class ReencryptedSecrets(Payload):
    """The result of encrypting the project's secrets with the newest master key."""

    key_id: str
    """The newest master key."""
    num_reencrypted: int
    """Secrets that another key had encrypted."""
