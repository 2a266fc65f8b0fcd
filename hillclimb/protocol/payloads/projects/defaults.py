"""Payload of a project's defaults."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload
from hillclimb.spec.rules.project_defaults import ProjectDefaults


class ProjectDefaultsPayload(Payload):
    """The defaults of the project."""

    object: Literal["project_defaults"] = "project_defaults"
    defaults: ProjectDefaults
    updated_by: str | None
    """Null: the project never had any."""
    updated_at: datetime | None
