"""Payload of a project's defaults."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class ProjectDefaultsPayload(Payload):
    """The defaults of the project."""

    object: Literal["project_defaults"] = "project_defaults"
    defaults: dict[str, Any]
    """`hillclimb.spec.rules.project_defaults.ProjectDefaults`, nulls included."""
    operator: dict[str, Any]
    """The operator's defaults, without nulls: they go after the project's."""
    updated_by: str | None
    """Null: the project never had any."""
    updated_at: datetime | None
