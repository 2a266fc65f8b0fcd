"""The base class of payloads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Payload(BaseModel):
    """Base of payloads; the service builds them from attributes, clients from JSON."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)
