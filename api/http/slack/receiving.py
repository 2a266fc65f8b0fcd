"""Stores verified requests of Slack, whichever way they came: signed, or over Socket Mode."""

from __future__ import annotations

from api.http.requests.services import Services
from api.http.slack.requests import Incoming
from api.notices.slack import inbox
from api.notices.slack.inbox import Received
from api.notices.slack.links import SlackUser, linked_principal
from api.runs.journal import utc_now


def receive(services: Services, incoming: Incoming, *, signature: str) -> int | None:
    """Store a request and return its id; null for a repeated command, click or event.

    Raises RequestForged for a signature that was received before.
    """
    payload = incoming.payload
    user = SlackUser(team_id=str(payload["team"]), user_id=str(payload["user"]))
    with services.database.transaction() as session:
        principal = linked_principal(session, user, now=utc_now())
        # Whoever clicks before they are linked may click again afterwards.
        counts = principal is not None or incoming.kind in ("event", "command")
        received = Received(
            kind=incoming.kind,
            signature=signature,
            payload=payload,
            project_id=None if principal is None else principal.project_id,
            dedupe_key=incoming.dedupe_key if counts else None,
        )
        return inbox.receive(session, received)
