"""`/v1/slack/…`: what Slack sends; signed by Slack, acknowledged before it is acted on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Header
from fastapi.responses import JSONResponse, Response

from api.http.problems import KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.context import RawBody, Services, ServicesDep
from api.http.slack.processing import process
from api.http.slack.receiving import receive
from api.http.slack.requests import (
    Incoming,
    read_command,
    read_event,
    read_interaction,
    read_json,
)
from api.notices.errors import RequestForged, SlackNotSetUp
from api.notices.slack.signature import verify
from api.runs.journal import utc_now

router = APIRouter(
    prefix="/v1/slack",
    tags=["slack"],
    responses={**documented(MALFORMED, TOO_LARGE, KINDS[RequestForged], KINDS[SlackNotSetUp])},
)

Signature = Annotated[
    str, Header(alias="X-Slack-Signature", max_length=200, description="Of the raw body.")
]
Timestamp = Annotated[
    str, Header(alias="X-Slack-Request-Timestamp", max_length=20, description="Seconds since 1970.")
]


@router.post(
    "/commands",
    operation_id="receive_slack_command",
    summary="Receive a slash command of Slack",
    response_class=Response,
)
def receive_command(
    services: ServicesDep,
    body: RawBody,
    background: BackgroundTasks,
    signature: Signature = "",
    timestamp: Timestamp = "",
) -> Response:
    """Acknowledge `/hillclimb …` at once; the reply goes to the command's `response_url`."""
    _verify(services, body, timestamp=timestamp, signature=signature)
    _receive(services, read_command(body), signature, background)
    return Response(status_code=200, background=background)


@router.post(
    "/interactions",
    operation_id="receive_slack_interaction",
    summary="Receive a click or a form of Slack",
    response_class=Response,
)
def receive_interaction(
    services: ServicesDep,
    body: RawBody,
    background: BackgroundTasks,
    signature: Signature = "",
    timestamp: Timestamp = "",
) -> Response:
    """Acknowledge a click at once, and a form with its mistakes; a second click is ignored."""
    _verify(services, body, timestamp=timestamp, signature=signature)
    incoming = read_interaction(body)
    if isinstance(incoming, dict):
        return JSONResponse({"response_action": "errors", "errors": incoming})
    if incoming is not None:
        _receive(services, incoming, signature, background)
    return Response(status_code=200, background=background)


@router.post(
    "/events",
    operation_id="receive_slack_event",
    summary="Receive an event of Slack",
    response_class=JSONResponse,
)
def receive_event(
    services: ServicesDep,
    body: RawBody,
    background: BackgroundTasks,
    signature: Signature = "",
    timestamp: Timestamp = "",
) -> Response:
    """Acknowledge an event at once, also one that Slack repeats; a mention is a command.

    The check of the address that Slack makes when it is entered is answered with its `challenge`.
    """
    _verify(services, body, timestamp=timestamp, signature=signature)
    facts = read_json(body)
    if facts.get("type") == "url_verification":
        return JSONResponse({"challenge": str(facts.get("challenge", ""))[:1000]})
    incoming = read_event(facts)
    if incoming is not None:
        _receive(services, incoming, signature, background)
    return JSONResponse({}, background=background)


def _verify(services: Services, body: bytes, *, timestamp: str, signature: str) -> None:
    secret = services.settings.slack_signing_secret
    if secret is None or not secret.get_secret_value().strip():
        raise SlackNotSetUp(
            "This service has no SLACK_SIGNING_SECRET, so it takes no requests of Slack"
            " (docs/slack.md)."
        )
    verify(secret.get_secret_value(), body, timestamp=timestamp, signature=signature, now=utc_now())


def _receive(
    services: Services, incoming: Incoming, signature: str, background: BackgroundTasks
) -> None:
    """Store a request, to be acted on after the acknowledgement; raises RequestForged."""
    request_id = receive(services, incoming, signature=signature)
    if request_id is not None:
        background.add_task(process, services, request_id)
