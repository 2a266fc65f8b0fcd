"""`POST /v1/ingest`: a trainer's events."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_batch
from api.http.requests.context import RawBody, ServicesDep, Token
from api.runs.errors import AttemptSuperseded, UnknownToken, UnsupportedSchema
from api.runs.journal import utc_now
from api.scheduling.record import record_push
from api.tables.access.identity import NotAuthenticated
from hillclimb.protocol.events import IngestReply

PROBLEMS = (
    MALFORMED,
    TOO_LARGE,
    INVALID,
    *(KINDS[e] for e in (NotAuthenticated, UnknownToken, AttemptSuperseded, UnsupportedSchema)),
)

router = APIRouter(prefix="/v1", tags=["trainers"])


@router.post(
    "/ingest",
    operation_id="ingest_events",
    summary="Push events of an attempt",
    responses={**documented(*PROBLEMS)},
    openapi_extra=json_body("IngestBatch"),
)
def ingest(services: ServicesDep, token: Token, body: RawBody) -> IngestReply:
    """Record the events that continue the recorded ones; the reply has the last recorded number.

    Repeated events change nothing. On `attempt_superseded` the trainer stops: its events no longer
    count.
    """
    batch = parse_batch(body)
    with services.database.transaction() as session:
        _, reply = record_push(session, token, batch.events, now=utc_now())
    return reply
