"""The body of a request that sets a secret."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from hillclimb.spec.section import Section

MIN_VALUE_CHARS, MAX_VALUE_BYTES = 6, 16_384
"""A shorter value is not distinct from other text, so it could not be redacted from logs."""


class SecretValue(Section):
    """The value of a secret."""

    value: Annotated[SecretStr, Field(max_length=MAX_VALUE_BYTES)]
    """6 characters to 16 KiB; no response repeats it."""
