"""Replies to requests of Slack, as they are stored before they are posted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.notices.slack.blocks import Block, Message, escape, section
from api.notices.slack.web_api import Slack

MAX_TEXT = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place of a reply: the address that came with the request, or a thread."""

    response_url: str | None = None
    channel: str | None = None
    thread_ts: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackReply:
    """The message to a person, who alone sees it unless it is `in_channel`."""

    message: Message
    in_channel: bool = False
    replaces: bool = False
    """Takes the place of the message with the button, which then cannot be pressed again."""

    def as_json(self, target: Target) -> dict[str, Any]:
        """Return the reply with its target, to store."""
        return {
            "text": self.message.text,
            "blocks": list(self.message.blocks),
            "in_channel": self.in_channel,
            "replaces": self.replaces,
            "response_url": target.response_url,
            "channel": target.channel,
            "thread_ts": target.thread_ts,
            "user": target.user,
        }


def sentence(text: str, *, in_channel: bool = False, replaces: bool = False) -> SlackReply:
    """Return a reply of one paragraph in Slack's markup."""
    message = Message(text=text[:MAX_TEXT], blocks=(section(text),))
    return SlackReply(message=message, in_channel=in_channel, replaces=replaces)


def plain(text: str) -> SlackReply:
    """Return a reply of plain text, in which nothing is markup."""
    return sentence(escape(text))


def of_blocks(text: str, blocks: Sequence[Block], *, in_channel: bool = False) -> SlackReply:
    """Return a reply of several blocks; `text` stands in notifications."""
    return SlackReply(message=Message(text=text, blocks=tuple(blocks)), in_channel=in_channel)


def post_reply(slack: Slack, stored: Mapping[str, Any]) -> None:
    """Post a stored reply; raises a `NoticeError`."""
    message = Message(text=stored["text"], blocks=tuple(stored["blocks"]))
    if stored["response_url"] is not None:
        body = {
            "text": message.text,
            "blocks": list(message.blocks),
            "response_type": "in_channel" if stored["in_channel"] else "ephemeral",
            "replace_original": stored["replaces"],
        }
        slack.respond(stored["response_url"], body)
    elif stored["in_channel"]:
        slack.post(stored["channel"], message, thread_ts=stored["thread_ts"])
    else:
        slack.post_to_user(
            stored["channel"], stored["user"], message, thread_ts=stored["thread_ts"]
        )
