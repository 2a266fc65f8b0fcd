"""The setting of a script: which task, which platform, how much the policy thinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EVERY_APP = (
    "booking",
    "github",
    "outlook",
    "reddit",
    "ticketmaster",
    "fira",
    "hubspot",
    "zillow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Choices that a script leaves to chance where it does not say."""

    apps: tuple[str, ...] = EVERY_APP
    min_calls: int = 1
    """Fewest calls of the task's expert."""
    max_calls: int = 6
    templates: tuple[str, ...] = ()
    """Templates of the task; none: any."""
    source: Literal["own", "imported", "any"] = "any"
    """`own`: tokens are counted and errors marked; `imported`: text only."""
    dialect: Literal["plain", "any", "naming", "null_errors"] = "any"
    titles: str | None = None
    """Pool of titles of which the app gets one (`material/titles.py`)."""
    thinks: float | None = None
    """Share of the turns with a thought; None: drawn."""
    grades: bool = True
