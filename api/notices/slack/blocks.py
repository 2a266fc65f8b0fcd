"""Block Kit: the few kinds of blocks that the messages consist of, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Block = dict[str, Any]

MAX_SECTION, MAX_HEADER, MAX_BUTTON, MAX_VALUE = 3000, 150, 75, 2000
"""Characters that Slack accepts in a section, a header, a button's text and a button's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The body of `chat.postMessage`, without channel and thread."""

    text: str
    blocks: Sequence[Mapping[str, Any]]


def escape(text: str) -> str:
    """Return the text with Slack's three control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def header(text: str) -> Block:
    """Return a headline."""
    return {"type": "header", "text": {"type": "plain_text", "text": text[:MAX_HEADER]}}


def section(markdown: str) -> Block:
    """Return a paragraph."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": markdown[:MAX_SECTION]}}


def fields(*pairs: tuple[str, str]) -> Block:
    """Return names with values in two columns; Slack accepts ten."""
    texts = [f"*{name}*\n{value}"[:2000] for name, value in pairs]
    return {"type": "section", "fields": [{"type": "mrkdwn", "text": text} for text in texts]}


def context(markdown: str) -> Block:
    """Return a line in small print."""
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": markdown[:MAX_SECTION]}]}


def code(text: str, *, most: int = 2800) -> Block:
    """Return text in a fixed-width font, with its end cut off where it is too long."""
    body = escape(text)
    cut = body if len(body) <= most else body[:most].rsplit("\n", 1)[0] + "\n…"
    return section(f"```\n{cut}\n```")


def actions(*buttons: Block) -> Block:
    """Return a row of buttons."""
    return {"type": "actions", "elements": list(buttons)}


def button(text: str, action_id: str, value: str, *, style: str | None = None) -> Block:
    """Return a button; `style` is `primary` or `danger`."""
    body: Block = {
        "type": "button",
        "text": {"type": "plain_text", "text": text[:MAX_BUTTON]},
        "action_id": action_id,
        "value": value[:MAX_VALUE],
    }
    return body if style is None else body | {"style": style}


def link_button(text: str, action_id: str, url: str) -> Block:
    """Return a button that opens a page."""
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": text[:MAX_BUTTON]},
        "action_id": action_id,
        "url": url,
    }


def with_confirmation(button: Block, title: str, question: str, yes: str) -> Block:
    """Return the button with a question that Slack puts before it acts."""
    texts = {"title": title, "confirm": yes, "deny": "Back"}
    confirm: Block = {
        name: {"type": "plain_text", "text": text[:100]} for name, text in texts.items()
    }
    confirm["text"] = {"type": "mrkdwn", "text": question[:300]}
    return button | {"confirm": confirm | {"style": "danger"}}


def progress_bar(done: int, total: int, *, width: int = 20) -> str:
    """Return a bar of `width` characters that shows done of total."""
    filled = min(width, round(width * done / total)) if total > 0 else 0
    return "█" * filled + "░" * (width - filled)


def share(value: float | None) -> str:
    """Return a share in [0, 1] as a percentage."""
    return "–" if value is None else f"{100 * value:.1f} %"
