"""Payloads of the links between Slack users and API keys, and of messages to Slack."""

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


class SlackMessagePayload(Payload):
    """A message of a run to a Slack channel, and its last try."""

    object: Literal["slack_message"] = "slack_message"
    id: int
    about: str
    """What it is about: `opened`, `started`, `eval`, `guard`, `ended` and others."""
    channel: str
    state: Literal["pending", "delivered", "skipped", "dead"]
    """`skipped`: the service has no bot token; `dead`: Slack refused it, or did not respond."""
    num_attempts: int
    error: str | None
    created_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None
    """Null once it is not tried again."""


class SlackMessageList(Payload):
    """One page of messages, newest first; `before` the last one's id is the next page."""

    object: Literal["list"] = "list"
    data: list[SlackMessagePayload]
    has_more: bool
