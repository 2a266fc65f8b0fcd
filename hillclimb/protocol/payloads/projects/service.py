"""Payloads of the service itself: its health, presets, session codes and agent keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class ReadyPayload(Payload):
    """The service can serve requests."""

    status: Literal["ready"] = "ready"
    database_revision: str
    warnings: list[str]
    """Problems that do not affect requests: sentences for the operator."""


class PresetPayload(Payload):
    """A spec by name."""

    object: Literal["preset"] = "preset"
    name: str
    about: str
    aliases: tuple[str, ...] = ()
    """Old names of task files by which it is found too."""
    spec: dict[str, Any]
    """The body for `POST /v1/runs`, as it is written: without defaults."""
    text: str
    """The same as YAML, with its comments."""


class PresetList(Payload):
    """All presets, by name."""

    object: Literal["list"] = "list"
    data: list[PresetPayload]


class SessionCodePayload(Payload):
    """A code that signs a browser in once."""

    object: Literal["session_code"] = "session_code"
    code: str
    login_url: str
    expires_in_s: int


class GrantPayload(Payload):
    """Runs and extensions that the owner of a key may spend, and those that are used."""

    num_runs: int
    """Runs that the key may create: submitted, forked, swept, or as cells of campaigns."""
    num_runs_used: int
    extra_usd: float
    """Dollars by which the key may extend budgets of runs, all extensions together."""
    extra_usd_used: float
    extra_hours: float
    """Hours by which the key may extend budgets of runs, all extensions together."""
    extra_hours_used: float


class AgentKeyPayload(Payload):
    """An API key that reads and writes runs within a grant."""

    object: Literal["agent_key"] = "agent_key"
    id: str
    name: str
    prefix: str
    """The first characters of the key."""
    grant: GrantPayload
    created_by: str
    created_at: datetime
    revoked_at: datetime | None


class CreatedAgentKey(AgentKeyPayload):
    """A new agent key, with the key itself, which is shown this once."""

    key: str


class AgentKeyList(Payload):
    """The newest agent keys of the project."""

    object: Literal["list"] = "list"
    data: list[AgentKeyPayload]
