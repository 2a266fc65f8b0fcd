"""Payloads of the links between Slack users and API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


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
