"""`/v1/runs`: create, plan, list, get, cancel, pause, resume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Header, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime
from sqlalchemy.orm import Session

from api.clusters import planning, quotes
from api.clusters.errors import NoMachineWillDo
from api.clusters.secrets import refuse_ungiven
from api.cursor import read_cursor, sign_cursor
from api.datasets.errors import DatasetUnusable
from api.identity import NotAllowed, NotAuthenticated, Principal
from api.openapi import json_body
from api.problems import (
    INVALID,
    INVALID_SPEC,
    KINDS,
    MALFORMED,
    TOO_LARGE,
    documented,
)
from api.routes.bodies import parse_spec
from api.routes.context import RawBody, Reader, Services, ServicesDep, Writer
from api.routes.hardware import describe_hardware
from api.routes.payloads import (
    PlanPayload,
    QueuePayload,
    RunList,
    RunPayload,
    describe_run,
    summarise_run,
)
from api.runs import control, idempotency, store, submit
from api.runs.errors import (
    CheckpointNotFound,
    CursorRejected,
    IdempotencyKeyReused,
    InvalidTransition,
    NothingToResume,
    RunNotFound,
    SpecOutdated,
)
from api.runs.idempotency import Answer, RequestKey
from api.runs.journal import utc_now
from api.runs.status import RunStatus
from api.runs.store import RunFilters
from api.runs.stored_spec import spec_of
from trainer.contract.spec import RunSpec

RING_AHEAD = 5
"""Waiting runs to look at when a slot may have become free."""

router = APIRouter(
    prefix="/v1/runs",
    tags=["runs"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

RunId = Annotated[str, Path(examples=["run_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="A repeated request with the same key and body gets the first one's answer.",
    ),
]
SPEC_PROBLEMS = (
    MALFORMED,
    TOO_LARGE,
    INVALID_SPEC,
    KINDS[CheckpointNotFound],
    KINDS[DatasetUnusable],
    KINDS[NoMachineWillDo],
)
NO_RUN = KINDS[RunNotFound]


def read_filters(
    status: Annotated[list[RunStatus] | None, Query()] = None,
    name: Annotated[str | None, Query(max_length=120, description="Part of the name.")] = None,
    created_after: Annotated[AwareDatetime | None, Query()] = None,
    created_before: Annotated[AwareDatetime | None, Query()] = None,
) -> RunFilters:
    """Return the filters of the query string."""
    return RunFilters(
        status=tuple(sorted(status or ())),
        name=name,
        created_after=created_after,
        created_before=created_before,
    )


Filters = Annotated[RunFilters, Depends(read_filters)]


@router.post(
    "",
    operation_id="create_run",
    summary="Submit a run",
    status_code=201,
    response_model=RunPayload,
    responses={**documented(*SPEC_PROBLEMS, KINDS[IdempotencyKeyReused])},
    openapi_extra=json_body("RunSpec"),
)
def create_run(
    services: ServicesDep,
    caller: Writer,
    body: RawBody,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store the run and queue it; it starts when a runner has a free slot."""
    spec = parse_spec(body)
    _refuse_unplaced(services, spec)
    _ask_prices(services, spec)
    request = _request_key(caller.project_id, "/v1/runs", idempotency_key, body)
    with services.database.transaction() as session:
        stored = idempotency.begin(session, request) if request else None
        if stored is not None:
            return _answer(stored, replayed=True)
        run = submit.submit(
            session, spec, project_id=caller.project_id, actor=caller.actor, now=utc_now()
        )
        answer = _describe(session, run.id, caller.project_id, status=201)
        if request:
            idempotency.finish(session, request, answer)
    background.add_task(services.bell.ring, [run.id])
    return _answer(answer, background=background)


@router.post(
    "/plan",
    operation_id="plan_run",
    summary="Check a spec and see what it resolves to",
    responses={**documented(*SPEC_PROBLEMS)},
    openapi_extra=json_body("RunSpec"),
)
def plan_run(services: ServicesDep, caller: Reader, body: RawBody) -> PlanPayload:
    """Return the resolved spec with every default, warnings, and the place in the queue.

    Of machines to be rented: which of them will do, the arithmetic of memory, disk and time, and
    what they cost.
    """
    spec = parse_spec(body)
    skypilot = spec.backend.skypilot
    _ask_prices(services, spec)
    with services.database.transaction() as session:
        plan = submit.plan(session, spec, project_id=caller.project_id, now=utc_now())
    return PlanPayload(
        spec=plan.spec,
        config_hash=plan.config_hash,
        warnings=(*plan.warnings, *_why_unplaced(services, spec)),
        dataset=plan.dataset,
        hardware=describe_hardware(plan.hardware, plan.quoted, skypilot.max_hours, now=utc_now())
        if plan.hardware is not None and skypilot is not None
        else None,
        queue=QueuePayload(position=plan.queue_position, reason=plan.queue_reason),
    )


@router.get(
    "",
    operation_id="list_runs",
    summary="List runs, newest first",
    responses={**documented(KINDS[CursorRejected])},
)
def list_runs(
    services: ServicesDep,
    caller: Reader,
    filters: Filters,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> RunList:
    """Return one page; `next_cursor` leads to the next."""
    return _page(services, caller.project_id, filters, cursor=cursor, limit=limit)


@router.get(
    "/{run_id}",
    operation_id="get_run",
    summary="Get a run",
    responses={**documented(NO_RUN)},
)
def get_run(services: ServicesDep, caller: Reader, run_id: RunId) -> RunPayload:
    """Return the run with its attempts, and its place in the queue while it waits."""
    with services.database.transaction() as session:
        return describe_run(session, store.get_run(session, caller.project_id, run_id))


@router.post(
    "/{run_id}/cancel",
    operation_id="cancel_run",
    summary="Cancel a run",
    responses={**documented(NO_RUN, KINDS[InvalidTransition])},
)
def cancel_run(
    services: ServicesDep, caller: Writer, run_id: RunId, background: BackgroundTasks
) -> RunPayload:
    """Cancel at once what has not started; a trainer at work checkpoints first. Repeatable."""
    return _stop(services, caller, run_id, background, control.cancel)


@router.post(
    "/{run_id}/pause",
    operation_id="pause_run",
    summary="Let a run rest",
    responses={**documented(NO_RUN, KINDS[InvalidTransition])},
)
def pause_run(
    services: ServicesDep, caller: Writer, run_id: RunId, background: BackgroundTasks
) -> RunPayload:
    """Give back what the run holds; a trainer at work checkpoints first. Repeatable."""
    return _stop(services, caller, run_id, background, control.pause)


@router.post(
    "/{run_id}/resume",
    operation_id="resume_run",
    summary="Go on from the newest checkpoint",
    response_model=RunPayload,
    responses={
        201: {"model": RunPayload, "description": "A new run that goes on from an ended one"},
        **documented(
            NO_RUN,
            KINDS[InvalidTransition],
            KINDS[NothingToResume],
            KINDS[SpecOutdated],
            KINDS[IdempotencyKeyReused],
        ),
    },
)
def resume_run(
    services: ServicesDep,
    caller: Writer,
    run_id: RunId,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Continue a paused run (200), or start a new run from an ended one's checkpoint (201)."""
    path = f"/v1/runs/{run_id}/resume"
    request = _request_key(caller.project_id, path, idempotency_key, b"")
    with services.database.transaction() as session:
        stored = idempotency.begin(session, request) if request else None
        if stored is not None:
            return _answer(stored, replayed=True)
        run = store.lock_run(session, run_id, project_id=caller.project_id)
        _refuse_unplaced(services, spec_of(run))
        resumed = control.resume(session, run, actor=caller.actor, now=utc_now())
        status = 200 if resumed.id == run_id else 201
        answer = _describe(session, resumed.id, caller.project_id, status=status)
        if request:
            idempotency.finish(session, request, answer)
    background.add_task(services.bell.ring, [resumed.id])
    return _answer(answer, background=background)


def _ask_prices(services: Services, spec: RunSpec) -> None:
    """Have the spec's prices asked for, whatever then becomes of the request."""
    skypilot = spec.backend.skypilot
    if skypilot is not None and planning.rents(spec) and services.settings.clouds:
        with services.database.transaction() as session:
            quotes.ask(session, skypilot, now=utc_now())


def _refuse_unplaced(services: Services, spec: RunSpec) -> None:
    settings = services.settings
    planning.refuse_unrented(spec, clouds=settings.clouds)
    planning.refuse_cut_off(
        spec,
        api_url=settings.node_api_url or settings.public_url,
        blobs_url=settings.node_blobs_url or settings.blobs_url,
    )
    refuse_ungiven(spec, services.node_secrets)


def _why_unplaced(services: Services, spec: RunSpec) -> tuple[str, ...]:
    """What a plan warns of: the machines could be had, and this service would not ask for them."""
    try:
        _refuse_unplaced(services, spec)
    except NoMachineWillDo as refused:
        why = str(refused).removesuffix(".")
        return (f"A submission is refused as this service is set up: {why}.",)
    return ()


def _stop(
    services: Services,
    caller: Principal,
    run_id: str,
    background: BackgroundTasks,
    act: Callable[..., None],
) -> RunPayload:
    """Cancel or pause a run, and ring for it and for those that may have its slot."""
    with services.database.transaction() as session:
        run = store.lock_run(session, run_id, project_id=caller.project_id)
        act(session, run, actor=caller.actor, now=utc_now())
        waiting = store.next_waiting(session, caller.project_id, limit=RING_AHEAD)
        session.flush()
        payload = describe_run(session, run)
    background.add_task(services.bell.ring, [run_id, *waiting])
    return payload


def _page(
    services: Services, project_id: str, filters: RunFilters, *, cursor: str | None, limit: int
) -> RunList:
    scope = {"project": project_id, "filters": repr(filters)}
    after = None
    if cursor is not None:
        moment, run_id = read_cursor(cursor, scope, secret=services.cursor_secret)
        after = (datetime.fromisoformat(moment), run_id)
    with services.database.transaction() as session:
        runs = store.list_runs(session, project_id, filters, after=after, limit=limit + 1)
    page, has_more = runs[:limit], len(runs) > limit
    position = [page[-1].created_at.isoformat(), page[-1].id] if has_more else None
    return RunList(
        data=[summarise_run(run) for run in page],
        has_more=has_more,
        next_cursor=sign_cursor(position, scope, secret=services.cursor_secret)
        if position
        else None,
    )


def _request_key(project_id: str, path: str, key: str | None, body: bytes) -> RequestKey | None:
    if key is None:
        return None
    return RequestKey(project_id=project_id, method="POST", path=path, key=key, body=body)


def _describe(session: Session, run_id: str, project_id: str, *, status: int) -> Answer:
    session.flush()
    payload = describe_run(session, store.get_run(session, project_id, run_id))
    body: dict[str, Any] = payload.model_dump(mode="json")
    return Answer(status=status, response=body)


def _answer(
    answer: Answer, *, replayed: bool = False, background: BackgroundTasks | None = None
) -> Response:
    headers = {"Location": f"/v1/runs/{answer.response['id']}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(
        answer.response, status_code=answer.status, headers=headers, background=background
    )
