"""`/v1/runs/{id}/events`: pages of events, and the stream without gaps or repeats."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from api.http.live.hub import Hub
from api.http.live.reader import envelope
from api.http.live.stream import EventStream, follow
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.tables import RunEvent
from api.tables.access.errors import StreamsBusy, TooManyStreams
from hillclimb.protocol.payloads.events import EventPage, EventPayload

router = APIRouter(prefix="/v1/runs/{run_id}/events", tags=["events"], responses=PROBLEMS)

MAX_SEQ = 2**31 - 1
"""Largest `seq` that the table can hold."""
After = Annotated[
    int, Query(ge=0, le=MAX_SEQ, description="Only events with a larger `seq`.", examples=[0])
]
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
STREAM_EXAMPLE = (
    "retry: 2000\n\n"
    "id: 7\nevent: step.completed\n"
    'data: {"seq":7,"id":"evt_06dz","type":"step.completed","created_at":"2026-01-02T03:04:05Z",'
    '"run_id":"run_06dz","attempt":1,"actor":"trainer","data":{"step":1}}\n\n'
    ": ping\n\n"
    "event: end\ndata: {}\n\n"
)


@router.get("", operation_id="list_events", summary="Page through a run's events")
def list_events(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    types: Annotated[
        str | None, Query(max_length=500, description="Comma-separated types.")
    ] = None,
) -> EventPage:
    """Return events in order of `seq`; pass the last one's `seq` as `after` for the next page."""
    with open_run(services, caller, run_id) as (session, run):
        query = select(RunEvent).where(RunEvent.run_id == run.id, RunEvent.seq > after)
        if types:
            query = query.where(RunEvent.type.in_(types.split(",")))
        events = session.scalars(query.order_by(RunEvent.seq).limit(limit + 1)).all()
        page = [EventPayload.model_validate(envelope(event)) for event in events[:limit]]
    return EventPage(data=page, has_more=len(events) > limit)


@router.get(
    "/stream",
    operation_id="stream_events",
    summary="Follow a run's events (SSE)",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Every event after `Last-Event-ID` or `after`, then new ones as they"
            " happen; `event: end` once the run has ended and all events are sent.",
            "content": {"text/event-stream": {"example": STREAM_EXAMPLE}},
        },
        **documented(KINDS[TooManyStreams], KINDS[StreamsBusy]),
    },
)
def stream_events(
    request: Request,
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    after: After = 0,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> EventStream:
    """Stream past events, then new ones; a client that reconnects sends its last `id`."""
    with open_run(services, caller, run_id):
        pass
    hub: Hub = request.app.state.hub
    hub.admit(caller)
    frames = follow(hub, run_id, _position(last_event_id, after), caller=caller)
    return EventStream(frames, headers=STREAM_HEADERS)


def _position(last_event_id: str | None, after: int) -> int:
    """Return the start position: `Last-Event-ID` before `after`."""
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdecimal():
        return min(int(last_event_id[:12]), MAX_SEQ)
    return after
