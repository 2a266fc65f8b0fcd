"""Bodies of requests that create and change webhooks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.spec.section import Section

EventType = Literal[
    "run.created",
    "run.status_changed",
    "run.warning",
    "trainer.started",
    "eval.completed",
    "probe.completed",
    "validation.completed",
    "checkpoint.saved",
    "checkpoint.refused",
    "guard.tripped",
    "budget.warned",
]
MAX_GRACE_HOURS = 720.0
Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2000,
        examples=["https://example.com/hook"],
        json_schema_extra={"pattern": r"^https://[!-~]+$"},
    ),
]
Description = Annotated[str, Field(max_length=300)]
Events = Annotated[tuple[EventType, ...], Field(max_length=32)]


class WebhookSpec(Section):
    """A new webhook."""

    url: Url
    """An https address with a public host."""
    description: Description = ""
    """A note for people."""
    events: Events = ()
    """Types of the events to send; none: all of them."""


class SecretRotation(Section):
    """A rotation of a webhook's signing secret."""

    grace_hours: Annotated[float, Field(ge=0.0, le=MAX_GRACE_HOURS, allow_inf_nan=False)] = 24.0
    """Hours for which the secret before signs every message too; 0 ends it at once."""


class WebhookChanges(Section):
    """Changes of a webhook; absent keys stay."""

    url: Url | None = None
    """Another address; it gets the messages that are due, too."""
    description: Description | None = None
    """Another note."""
    events: Events | None = None
    """Other types of events."""
    enabled: bool | None = None
    """False: send nothing. True: send again, from the next event on."""
