"""Reads the bodies that Slack sends: commands, clicks, forms and events, as stored requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from api.http.problems import MALFORMED, Problem
from api.http.slack.actions import FORK_FORM, ONCE, form_mistakes
from api.notices.slack.inbox import Kind

Json = Mapping[str, Any]
MENTION = "app_mention"
MAX_EVENT_TEXT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The request that a body makes."""

    kind: Kind
    payload: dict[str, Any]
    dedupe_key: str | None = None


def read_command(body: bytes) -> Incoming:
    """Return the command of a form; raises Problem for a body that is none."""
    return command_of(_form(body))


def command_of(form: Mapping[str, str]) -> Incoming:
    """Return the command of a form's fields; raises Problem where one is missing.

    Slack names each command by its trigger, also where it sends it a second time.
    """
    trigger = form.get("trigger_id", "")
    payload = {
        "team": _text(form, "team_id"),
        "user": _text(form, "user_id"),
        "channel": _text(form, "channel_id"),
        "text": form.get("text", ""),
        "response_url": _text(form, "response_url"),
    }
    return Incoming(
        kind="command",
        payload=payload,
        dedupe_key=f"command:{payload['team']}:{trigger}" if trigger else None,
    )


def read_interaction(body: bytes) -> Incoming | dict[str, str] | None:
    """Return a click or a form that was filled in; mistakes of the form by block; null: neither.

    Raises Problem for a body that is no interaction.
    """
    return interaction_of(_json(_text(_form(body), "payload").encode()))


def interaction_of(facts: Json) -> Incoming | dict[str, str] | None:
    """Return what `read_interaction` does, from the interaction's JSON."""
    who = {"team": _of(facts, "team", "id"), "user": _of(facts, "user", "id")}
    if facts.get("type") == "block_actions":
        return _click(facts, who)
    if facts.get("type") == "view_submission":
        return _form_submission(facts, who)
    return None


def _click(facts: Json, who: dict[str, str]) -> Incoming | None:
    actions = facts.get("actions")
    if not isinstance(actions, list) or not actions or not isinstance(actions[0], dict):
        raise Problem(MALFORMED, "The interaction has no action.")
    action_id, value = _text(actions[0], "action_id"), str(actions[0].get("value", ""))
    message = facts.get("message") if isinstance(facts.get("message"), dict) else {}
    container = facts.get("container") if isinstance(facts.get("container"), dict) else {}
    assert isinstance(message, dict)
    assert isinstance(container, dict)
    ts = str(message.get("ts") or container.get("message_ts") or "")
    channel = str(container.get("channel_id") or _of(facts, "channel", "id"))
    is_whisper = bool(container.get("is_ephemeral"))
    thread_ts = None if is_whisper else str(message.get("thread_ts") or ts) or None
    payload = who | {
        "channel": channel,
        "action_id": action_id,
        "value": value,
        "thread_ts": thread_ts,
        "response_url": facts.get("response_url"),
        "trigger_id": str(facts.get("trigger_id", "")),
    }
    place = ":".join((who["team"], channel, ts, who["user"], action_id, value))
    return Incoming(
        kind="action",
        payload=payload,
        dedupe_key=f"click:{place}" if action_id in ONCE else None,
    )


def _form_submission(facts: Json, who: dict[str, str]) -> Incoming | dict[str, str] | None:
    view = facts.get("view")
    if not isinstance(view, dict) or view.get("callback_id") != FORK_FORM:
        return None
    place = _json(_text(view, "private_metadata").encode())
    values = _values(view)
    mistakes = form_mistakes(values)
    if mistakes:
        return mistakes
    payload = who | {
        "channel": _text(place, "channel"),
        "run": _text(place, "run"),
        "thread_ts": place.get("ts"),
        "values": values,
    }
    return Incoming(kind="view", payload=payload, dedupe_key=f"view:{_text(view, 'id')}")


def _values(view: Json) -> dict[str, str]:
    state = view.get("state")
    blocks = state.get("values", {}) if isinstance(state, dict) else {}
    texts: dict[str, str] = {}
    for block, elements in blocks.items() if isinstance(blocks, dict) else ():
        for element in elements.values() if isinstance(elements, dict) else ():
            if isinstance(element, dict) and isinstance(element.get("value"), str):
                texts[str(block)] = element["value"]
    return texts


def read_event(facts: Json) -> Incoming | None:
    """Return an event that the app handles; null for any other.

    A mention is a command, and its reply goes into the thread.
    """
    event = facts.get("event")
    if not isinstance(event, dict) or event.get("bot_id") is not None:
        return None
    kind = str(event.get("type"))
    if kind not in (MENTION, "app_uninstalled", "tokens_revoked"):
        return None
    words = str(event.get("text", ""))[:MAX_EVENT_TEXT].split(">", 1)
    payload = {
        "type": kind,
        "team": _text(facts, "team_id"),
        "user": str(event.get("user", "")),
        "channel": str(event.get("channel", "")),
        "thread_ts": event.get("thread_ts") or event.get("ts"),
        "text": words[-1].strip(),
    }
    return Incoming(kind="event", payload=payload, dedupe_key=f"event:{_text(facts, 'event_id')}")


def read_json(body: bytes) -> Json:
    """Return the object of a JSON body; raises Problem."""
    return _json(body)


def _form(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise Problem(MALFORMED, "The body is not a form.") from error
    return {name: values[0].replace("\x00", "") for name, values in fields.items()}


def _json(text: bytes) -> Json:
    if b"\x00" in text or b"\\u0000" in text:
        raise Problem(MALFORMED, "The body contains the character U+0000.")
    try:
        facts = json.loads(text)
        json.dumps(facts, ensure_ascii=False).encode()  # half a surrogate is no text
    except (ValueError, RecursionError) as error:
        raise Problem(MALFORMED, "The body is not JSON.") from error
    if not isinstance(facts, dict):
        raise Problem(MALFORMED, "The body is not a JSON object.")
    return facts


def _text(facts: Json, name: str) -> str:
    value = facts.get(name)
    if not isinstance(value, str) or not value:
        raise Problem(MALFORMED, f"The body has no {name}.")
    return value


def _of(facts: Json, name: str, key: str) -> str:
    inner = facts.get(name)
    return _text(inner if isinstance(inner, dict) else {}, key)
