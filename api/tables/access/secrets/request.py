"""The body of a request that sets a secret."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from hillclimb.spec.hosts import SecretHost
from hillclimb.spec.section import Section

MAX_HOSTS = 16
MIN_VALUE_CHARS, MAX_VALUE_BYTES = 6, 16_384
"""A shorter value is not distinct from other text, so it could not be redacted from logs."""


class SecretValue(Section):
    """The value of a secret."""

    value: Annotated[
        SecretStr,
        Field(max_length=MAX_VALUE_BYTES, json_schema_extra={"minLength": MIN_VALUE_CHARS}),
    ]
    """6 characters to 16 KiB; no response repeats it."""
    hosts: Annotated[list[SecretHost], Field(max_length=MAX_HOSTS)] | None = None
    """Hosts to which a spec may send it (`environment.openenv`, `validation.teacher`), such as
    `api.example.org` or `*.example.org`, without a port; an empty list: only the platform that the
    variable is named for. null: as before, at first empty."""
