"""Reads what arrives over Socket Mode as the requests that signed routes receive, and stores it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.http.problems import Problem
from api.http.requests.services import Services
from api.http.slack.receiving import receive
from api.http.slack.requests import (
    Incoming,
    command_of,
    interaction_of,
    read_event,
    read_json,
)
from api.notices.errors import RequestForged
from api.notices.slack.socket import SocketEnvelope

COMMAND, INTERACTION, EVENT = "slash_commands", "interactive", "events_api"
MAX_ID = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An envelope that may be acknowledged."""

    request_id: int | None = None
    """The stored request to act on; null: nothing is left to do."""
    answer: Mapping[str, Any] | None = None
    """Mistakes of a form, which go back with the acknowledgement."""


def take_envelope(services: Services, envelope: SocketEnvelope) -> Receipt:
    """Store an envelope's request, once however often it is sent.

    What cannot be read is logged and given up: Slack would send the same again.
    """
    try:
        incoming = _read(envelope)
        if not isinstance(incoming, Incoming):
            return _nothing(incoming)
        signature = f"socket:{envelope.id[:MAX_ID]}"
        return Receipt(request_id=receive(services, incoming, signature=signature))
    except Problem as error:
        log.warning("envelope of type %s cannot be read: %s", envelope.type, error)
    except RequestForged:
        log.info("envelope %s was received before", envelope.id[:MAX_ID])
    return Receipt()


def _nothing(mistakes: Mapping[str, str] | None) -> Receipt:
    if mistakes is None:
        return Receipt()
    return Receipt(answer={"response_action": "errors", "errors": dict(mistakes)})


def _read(envelope: SocketEnvelope) -> Incoming | dict[str, str] | None:
    if envelope.type == COMMAND:
        texts = {
            str(name): value.replace("\x00", "")
            for name, value in envelope.payload.items()
            if isinstance(value, str)
        }
        return command_of(texts)
    facts = read_json(json.dumps(envelope.payload).encode())
    if envelope.type == INTERACTION:
        return interaction_of(facts)
    return read_event(facts) if envelope.type == EVENT else None
