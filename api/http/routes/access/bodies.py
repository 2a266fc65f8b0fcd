"""Bodies of requests about access."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.tables.access.roles import Role, Scope
from hillclimb.spec.section import WHOLE, Moment

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 ._@/-]{0,79}$")
Name = Annotated[str, StringConstraints(pattern=NAME.pattern)]
"""Up to 80 letters, digits, blanks and `._@/-`: names stand in events and in logs."""
MAX_QUOTA = 1_000_000
Quota = Annotated[int, Field(ge=0, le=MAX_QUOTA, strict=True), WHOLE]
MAX_GRACE_HOURS = 24 * 30
_IN_EMAIL = r"[^@\s\x00-\x1f\x7f-\x9f/]"
Email = Annotated[
    str, StringConstraints(pattern=rf"^{_IN_EMAIL}{{1,64}}@{_IN_EMAIL}{{1,190}}$", max_length=254)
]
"""Without blanks and control characters, U+0085 too: it is a blank to some regular expressions."""
EmailPath = Annotated[Email, Path(examples=["ada@example.org"])]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class CreateKey(_Body):
    """A key to create."""

    name: Name
    """The name of the key in events and in the audit log."""
    scopes: list[Scope] = Field(min_length=1, max_length=len(Scope))
    expires_at: Moment | None = None
    """Null: the key is valid until it is revoked."""
    owner: Email | None = None
    """The member whose role bounds the key; null for a key of a service."""


class RotateKey(_Body):
    """A rotation of a key."""

    grace_hours: float = Field(
        default=24.0, ge=0, le=MAX_GRACE_HOURS, allow_inf_nan=False, strict=True
    )
    """Hours for which the secret before stays valid; 0 ends it at once."""


class SetMember(_Body):
    """The role of a member."""

    role: Role


class CreateProject(_Body):
    """A project to create."""

    name: Name


class SetQuotas(_Body):
    """Quotas of a project; null is the service's default."""

    queued_runs: Quota | None = None
    running_runs: Quota | None = None
    submissions_per_hour: Quota | None = None
    dataset_bytes: Annotated[int, Field(ge=0, le=2**53, strict=True), WHOLE] | None = None


def is_past(moment: datetime | None, *, now: datetime) -> bool:
    """Return True for an expiry that no key could be used before."""
    return moment is not None and moment <= now
