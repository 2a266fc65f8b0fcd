"""`/v1/runs`: create, plan, list, get, delete, cancel, pause, resume, fork."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Header, Path, Query, Response
from fastapi.responses import JSONResponse

from api.admission.admission import Admission, Admitted
from api.admission.deletion.runs import delete_run
from api.admission.lineage.fork import ForkRequest
from api.admission.refusals.acceptance.errors import PathNotAccepted
from api.clusters.errors import NoEligibleHardware
from api.datasets.errors import DatasetUnusable
from api.http.document.openapi import json_body
from api.http.payloads.runs import (
    describe_plan,
    describe_run,
    summarise_run,
    summarise_without_spec,
)
from api.http.problems import INVALID, INVALID_SPEC, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_body, parse_spec
from api.http.requests.context import (
    RawBody,
    Reader,
    Services,
    ServicesDep,
    Writer,
    request_key,
)
from api.http.requests.cursor import read_cursor, sign_cursor
from api.http.requests.stopping import stop_and_enqueue
from api.results.evals.conclusion import result_of_run
from api.runs import store
from api.runs.errors import (
    AddressRefused,
    CheckpointMisfit,
    CheckpointNotFound,
    CursorRejected,
    DefaultsMisfit,
    ForkRejected,
    InvalidTransition,
    ModelUnsupported,
    NothingToResume,
    RunImported,
    RunInUse,
    RunNotFound,
    SpecOutdated,
)
from api.runs.journal import utc_now
from api.runs.status import RunStatus
from api.runs.store import RunFilters
from api.scheduling import control
from api.tables.access.errors import QuotaExceeded
from api.tables.access.grants.charging import GrantExhausted
from api.tables.access.idempotency import IdempotencyKeyReused, RequestKey
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal
from api.tables.access.secrets.errors import SecretMissing, SecretNotForHost
from hillclimb.protocol.payloads.runs import (
    DeletedRunPayload,
    ForkPayload,
    PlanPayload,
    RunList,
    RunPayload,
)
from hillclimb.spec.section import MAX_TAGS, Moment, Tag
from hillclimb.spec.sections import RunKind

MAX_RESULTS = 50
"""Runs of a page with results: each costs a comparison of two evaluations."""

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
        description="A repeated request with the same key and body gets the first response.",
    ),
]
WithResults = Annotated[bool, Query(description="With `result`, of at most 50 runs.")]
SPEC_PROBLEMS = (
    MALFORMED,
    TOO_LARGE,
    INVALID_SPEC,
    KINDS[CheckpointNotFound],
    KINDS[RunImported],
    KINDS[CheckpointMisfit],
    KINDS[RunNotFound],
    KINDS[DatasetUnusable],
    KINDS[NoEligibleHardware],
    KINDS[QuotaExceeded],
    KINDS[SecretMissing],
    KINDS[SecretNotForHost],
    KINDS[AddressRefused],
    KINDS[DefaultsMisfit],
    KINDS[ModelUnsupported],
    KINDS[PathNotAccepted],
)
NO_RUN = KINDS[RunNotFound]


async def read_filters(  # noqa: PLR0913 (one per parameter of the query)
    status: Annotated[list[RunStatus] | None, Query()] = None,
    name: Annotated[str | None, Query(max_length=120, description="Part of the name.")] = None,
    tag: Annotated[
        list[Tag] | None,
        Query(max_length=MAX_TAGS, description="Runs that have every one of these tags."),
    ] = None,
    match: Annotated[
        str | None,
        Query(min_length=1, max_length=120, description="The name, or the beginning of the id."),
    ] = None,
    kind: Annotated[RunKind | None, Query(description="Kind of the spec.")] = None,
    created_after: Annotated[Moment | None, Query()] = None,
    created_before: Annotated[Moment | None, Query()] = None,
) -> RunFilters:
    """Return the filters of the query string."""
    return RunFilters(
        status=tuple(sorted(status or ())),
        kind=kind,
        name=name,
        tags=tuple(sorted(set(tag or ()))),
        match=match,
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
    responses={**documented(*SPEC_PROBLEMS, KINDS[GrantExhausted], KINDS[IdempotencyKeyReused])},
    openapi_extra=json_body("RunSpec"),
)
async def create_run(
    services: ServicesDep,
    caller: Writer,
    body: RawBody,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store the run and queue it; it starts when a runner has a free slot."""
    request = request_key(caller, "/v1/runs", idempotency_key, body)
    submit = partial(_submit, services.admission, body, caller, request)
    return _answer(services, await services.run_pools.submissions.run(submit), background)


def _submit(
    admission: Admission, body: bytes, caller: Principal, request: RequestKey | None
) -> Admitted:
    return admission.submit(parse_spec(body, admission.accepted()), caller, request)


@router.post(
    "/plan",
    operation_id="plan_run",
    summary="Check a spec without submitting it",
    responses={**documented(*SPEC_PROBLEMS)},
    openapi_extra=json_body("RunSpec"),
)
def plan_run(services: ServicesDep, caller: Reader, body: RawBody) -> PlanPayload:
    """Return the resolved spec with every default, warnings, and the queue position.

    For rented machines also the eligible candidates, the estimates of memory, disk and time, and
    prices.
    """
    admission = services.admission
    spec = parse_spec(body, admission.accepted())
    return describe_plan(admission.plan(spec, caller), now=utc_now())


@router.get(
    "",
    operation_id="list_runs",
    summary="List runs, newest first",
    responses={**documented(KINDS[CursorRejected])},
)
async def list_runs(
    services: ServicesDep,
    caller: Reader,
    filters: Filters,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    results: WithResults = False,  # noqa: FBT002 (a query parameter)
) -> RunList:
    """Return one page; `next_cursor` leads to the next.

    With `results=true` each run has pass@1 of its first and last evaluation, and the verdict.
    """
    if results:
        limit = min(limit, MAX_RESULTS)
    page = (cursor, limit)
    read = partial(_page, services, caller.project_id, filters, page, with_results=results)
    return await services.run_pools.lists.run(read)


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


@router.delete(
    "/{run_id}",
    operation_id="delete_run",
    summary="Delete a run",
    status_code=202,
    responses={**documented(NO_RUN, KINDS[InvalidTransition], KINDS[RunInUse])},
)
def remove_run(services: ServicesDep, caller: Writer, run_id: RunId) -> DeletedRunPayload:
    """Delete an ended run with its checkpoints, rollouts, logs and figures, for good.

    For an admin, and for whoever submitted it. No request reaches it from the response on; its rows
    and files are deleted in the background. `errors` of `run_in_use` name what needs the run.
    """
    with services.database.transaction() as session:
        deleted = delete_run(session, run_id, caller, now=utc_now())
    return DeletedRunPayload.model_validate(deleted)


@router.post(
    "/{run_id}/cancel",
    operation_id="cancel_run",
    summary="Cancel a run",
    responses={**documented(NO_RUN, KINDS[InvalidTransition], KINDS[RunImported])},
)
def cancel_run(
    services: ServicesDep, caller: Writer, run_id: RunId, background: BackgroundTasks
) -> RunPayload:
    """Cancel a run; a running trainer saves a checkpoint first. Idempotent."""
    return stop_and_enqueue(services, caller, run_id, background, control.cancel)


@router.post(
    "/{run_id}/pause",
    operation_id="pause_run",
    summary="Pause a run",
    responses={**documented(NO_RUN, KINDS[InvalidTransition], KINDS[RunImported])},
)
def pause_run(
    services: ServicesDep, caller: Writer, run_id: RunId, background: BackgroundTasks
) -> RunPayload:
    """Pause a run and release its slot or cluster; its trainer saves a checkpoint first."""
    return stop_and_enqueue(services, caller, run_id, background, control.pause)


@router.post(
    "/{run_id}/resume",
    operation_id="resume_run",
    summary="Resume from the newest checkpoint",
    response_model=RunPayload,
    responses={
        201: {"model": RunPayload, "description": "A new run that continues an ended one"},
        **documented(
            NO_RUN,
            KINDS[InvalidTransition],
            KINDS[RunImported],
            KINDS[NothingToResume],
            KINDS[SpecOutdated],
            KINDS[QuotaExceeded],
            KINDS[GrantExhausted],
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
    request = request_key(caller, f"/v1/runs/{run_id}/resume", idempotency_key, b"")
    return _answer(services, services.admission.resume(run_id, caller, request), background)


@router.post(
    "/{run_id}/fork",
    operation_id="fork_run",
    summary="Fork a run",
    status_code=201,
    response_model=ForkPayload,
    responses={
        **documented(
            NO_RUN,
            *SPEC_PROBLEMS,
            KINDS[ForkRejected],
            KINDS[GrantExhausted],
            KINDS[IdempotencyKeyReused],
        )
    },
    openapi_extra=json_body("ForkRequest", required=False),
)
def fork_run(
    services: ServicesDep,
    caller: Writer,
    run_id: RunId,
    body: RawBody,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Start a new run from the run's resolved spec with changes, optionally from its checkpoint.

    The new run names its parent in `lineage.forked_from`; the response has the difference of the
    two specs.
    """
    request = request_key(caller, f"/v1/runs/{run_id}/fork", idempotency_key, body)
    admitted = services.admission.fork(
        run_id, parse_body(ForkRequest, body or b"{}"), caller, request
    )
    return _answer(services, admitted, background)


def _page(
    services: Services,
    project_id: str,
    filters: RunFilters,
    page_of: tuple[str | None, int],
    *,
    with_results: bool,
) -> RunList:
    cursor, limit = page_of
    scope = {"project": project_id, "filters": repr(filters)}
    after = None
    if cursor is not None:
        moment, run_id = read_cursor(cursor, scope, secret=services.cursor_secret)
        after = (datetime.fromisoformat(moment), run_id)
    with services.database.transaction() as session:
        if with_results:
            runs = store.list_runs(session, project_id, filters, after=after, limit=limit + 1)
            summaries = [summarise_run(run, result_of_run(session, run)) for run in runs[:limit]]
        else:
            rows = store.list_without_specs(
                session, project_id, filters, after=after, limit=limit + 1
            )
            summaries = [summarise_without_spec(*row) for row in rows[:limit]]
    position = None
    if has_more := len(runs if with_results else rows) > limit:
        position = [summaries[-1].created_at.isoformat(), summaries[-1].id]
    return RunList(
        data=summaries,
        has_more=has_more,
        next_cursor=sign_cursor(position, scope, secret=services.cursor_secret)
        if position
        else None,
    )


def _answer(services: Services, admitted: Admitted, background: BackgroundTasks) -> Response:
    """Return the response for an admitted run, and enqueue one whose turn is now.

    One that waits for a runner or for other runs becomes due by itself: a task would change
    nothing.
    """
    headers = {"Location": f"/v1/runs/{admitted.run_id}"}
    if admitted.is_replayed:
        headers["Idempotent-Replayed"] = "true"
    elif not admitted.waits:
        background.add_task(services.task_queue.enqueue, [admitted.run_id])
    stored = admitted.response
    return JSONResponse(
        stored.response, status_code=stored.status, headers=headers, background=background
    )
