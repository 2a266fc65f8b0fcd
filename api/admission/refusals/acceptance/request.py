"""Bodies of the routes of acceptance."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from hillclimb.spec.section import Section


class ServiceChecksSpec(Section):
    """A ladder for the service to climb."""

    channel: Annotated[str, StringConstraints(pattern=r"^[#A-Za-z0-9._-]{2,80}$")] | None = None
    """Of slack: the channel to post to, `#NAME` or its id."""
