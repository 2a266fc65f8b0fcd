"""Payloads of the service itself: its health, presets, session codes and links of Slack users."""

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


class SlackLinkCodePayload(Payload):
    """A code that links one Slack user to the caller's API key."""

    object: Literal["slack_link_code"] = "slack_link_code"
    code: str
    command: str
    """What to send in Slack."""
    expires_in_s: int


class SlackLinkPayload(Payload):
    """A Slack user who acts with an API key."""

    object: Literal["slack_link"] = "slack_link"
    team_id: str
    user_id: str
    key_id: str
    created_at: datetime


class SlackLinkList(Payload):
    """The linked Slack users of a project, newest first."""

    object: Literal["list"] = "list"
    data: list[SlackLinkPayload]
