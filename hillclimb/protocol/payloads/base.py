"""The base class of payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict

from hillclimb.spec.documented import Documented


class Payload(Documented):
    """Base of payloads; the service builds them from attributes, clients from JSON.

    A client ignores fields that it does not know: the service may be newer.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the payload of exactly these facts.

        Raises:
            ValidationError: a fact is missing, has another type, or is not declared.
        """
        return cls.model_validate(facts, extra="forbid")
