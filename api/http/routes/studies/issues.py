"""`/v1/issues`: the project's ledger of issues, measured by the outcomes."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import RawBody, Reader, ServicesDep, Writer, request_key
from api.http.routes.runs.runs import IdempotencyKey
from api.results.errors import IssueClosed, IssueNotFound, IssueRejected, NoSuchEval
from api.results.issues import store
from api.results.issues.ledger import ledger_markdown
from api.results.issues.measure import Measuring
from api.results.issues.request import IssueChanges, IssueResolution, IssueSpec
from api.results.issues.store import IssueFilters
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables.access import idempotency
from api.tables.access.idempotency import IdempotencyKeyReused, StoredResponse
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.studies.issues import IssueLedger, IssueList, IssuePayload
from hillclimb.stats.trajectories.patterns.pattern import Severity

CREATED = 201

router = APIRouter(
    prefix="/v1/issues",
    tags=["issues"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)
IssueId = Annotated[str, Path(examples=["iss_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
State = Annotated[Literal["open", "closed", "all"], Query()]
SeverityFilter = Annotated[Severity | None, Query(description="Only issues of this severity.")]
EnvFilter = Annotated[
    str | None, Query(max_length=200, description="Only issues of this environment.")
]
NO_ISSUE = KINDS[IssueNotFound]
BODY = (MALFORMED, TOO_LARGE, KINDS[RunNotFound], KINDS[NoSuchEval])


@router.post(
    "",
    operation_id="create_issue",
    summary="Create an issue",
    status_code=CREATED,
    response_model=IssuePayload,
    responses={**documented(*BODY, KINDS[IssueRejected], KINDS[IdempotencyKeyReused])},
    openapi_extra=json_body("IssueSpec"),
)
def create_issue(
    services: ServicesDep,
    caller: Writer,
    body: RawBody,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store an issue under the project's next number; its figures are computed from outcomes."""
    spec = parse_body(IssueSpec, body)
    request = request_key(caller, "/v1/issues", idempotency_key, body)
    with services.database.transaction() as session:
        stored = idempotency.begin(session, request) if request else None
        if stored is not None:
            return JSONResponse(stored.response, stored.status, {"Idempotent-Replayed": "true"})
        issue = store.create_issue(
            session, spec, project_id=caller.project_id, actor=caller.actor, now=utc_now()
        )
        payload = IssuePayload.of(Measuring(session).issue_facts(issue))
        response = payload.model_dump(mode="json")
        if request:
            idempotency.finish(session, request, StoredResponse(status=CREATED, response=response))
    return JSONResponse(response, CREATED, {"Location": f"/v1/issues/{payload.id}"})


@router.get(
    "",
    operation_id="list_issues",
    summary="List issues, newest first",
    responses={**documented(NO_ISSUE)},
)
def list_issues(  # noqa: PLR0913 (one per parameter)
    services: ServicesDep,
    caller: Reader,
    state: State = "all",
    severity: SeverityFilter = None,
    env: EnvFilter = None,
    before: Annotated[
        str | None, Query(max_length=60, description="Id of the last issue of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> IssueList:
    """Return one page of the project's issues with their shares before and after and status."""
    filters = IssueFilters(state=state, severity=severity, env_key=env)
    with services.database.transaction() as session:
        last = store.get_issue(session, caller.project_id, before) if before else None
        rows = store.list_issues(session, caller.project_id, filters, before=last, limit=limit + 1)
        measuring = Measuring(session)
        return IssueList(
            data=[IssuePayload.of(measuring.issue_facts(issue)) for issue in rows[:limit]],
            has_more=len(rows) > limit,
        )


@router.get("/ledger", operation_id="get_issue_ledger", summary="Read the ledger as Markdown")
def get_ledger(
    services: ServicesDep,
    caller: Reader,
    state: State = "all",
    severity: SeverityFilter = None,
    env: EnvFilter = None,
) -> IssueLedger:
    """Return the newest 200 issues as the tables of an experiment log, by severity."""
    filters = IssueFilters(state=state, severity=severity, env_key=env)
    with services.database.transaction() as session:
        rows = store.list_issues(session, caller.project_id, filters, limit=store.MAX_LEDGER)
        measuring = Measuring(session)
        facts = [measuring.issue_facts(issue) for issue in rows]
        return IssueLedger(num_issues=len(facts), markdown=ledger_markdown(facts))


@router.get(
    "/{issue_id}",
    operation_id="get_issue",
    summary="Read an issue",
    responses={**documented(NO_ISSUE)},
)
def get_issue(services: ServicesDep, caller: Reader, issue_id: IssueId) -> IssuePayload:
    """Return an issue with its shares before and after, test and status."""
    with services.database.transaction() as session:
        issue = store.get_issue(session, caller.project_id, issue_id)
        return IssuePayload.of(Measuring(session).issue_facts(issue))


@router.patch(
    "/{issue_id}",
    operation_id="change_issue",
    summary="Change an issue",
    response_model=IssuePayload,
    responses={**documented(*BODY, NO_ISSUE, KINDS[IssueClosed])},
    openapi_extra=json_body("IssueChanges"),
)
def change_issue(
    services: ServicesDep, caller: Writer, issue_id: IssueId, body: RawBody
) -> IssuePayload:
    """Change the keys that are sent, such as `after`; a closed issue does not change."""
    changes = parse_body(IssueChanges, body)
    with services.database.transaction() as session:
        issue = store.get_issue(session, caller.project_id, issue_id)
        store.change_issue(session, issue, changes, now=utc_now())
        return IssuePayload.of(Measuring(session).issue_facts(issue))


@router.post(
    "/{issue_id}/close",
    operation_id="close_issue",
    summary="Close an issue",
    response_model=IssuePayload,
    responses={**documented(MALFORMED, TOO_LARGE, NO_ISSUE, KINDS[IssueClosed])},
    openapi_extra=json_body("IssueResolution"),
)
def close_issue(
    services: ServicesDep, caller: Writer, issue_id: IssueId, body: RawBody
) -> IssuePayload:
    """Close an issue with a sentence on what ended it; its status stays computed."""
    resolution = parse_body(IssueResolution, body).resolution
    with services.database.transaction() as session:
        issue = store.get_issue(session, caller.project_id, issue_id)
        store.close_issue(session, issue, resolution=resolution, actor=caller.actor, now=utc_now())
        return IssuePayload.of(Measuring(session).issue_facts(issue))
