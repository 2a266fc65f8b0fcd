"""`/v1/campaigns`: evaluations of several models on several datasets as one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Path, Query, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from api.admission.campaigns import launch, store
from api.admission.campaigns.errors import CampaignNotFound, CampaignRejected
from api.admission.campaigns.table import build_table
from api.http.document.openapi import json_body
from api.http.payloads.campaigns import describe_campaign, summarise_campaign
from api.http.problems import INVALID, INVALID_SPEC, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_campaign
from api.http.requests.context import RawBody, Reader, Services, ServicesDep, Writer, request_key
from api.http.routes.runs.runs import IdempotencyKey
from api.runs.errors import CheckpointNotFound, RunNotFound
from api.runs.journal import utc_now
from api.tables import Campaign, Run
from api.tables.access import idempotency
from api.tables.access.grants.charging import GrantExhausted
from api.tables.access.idempotency import IdempotencyKeyReused, StoredResponse
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal
from hillclimb.protocol.payloads.studies.campaigns import (
    CampaignList,
    CampaignPayload,
    CampaignTable,
)
from hillclimb.spec.run import RunSpec

CREATED = 201

router = APIRouter(
    prefix="/v1/campaigns",
    tags=["campaigns"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)
CampaignId = Annotated[str, Path(examples=["camp_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
NO_CAMPAIGN = KINDS[CampaignNotFound]


@router.post(
    "",
    operation_id="create_campaign",
    summary="Launch a campaign",
    status_code=CREATED,
    response_model=CampaignPayload,
    responses={
        **documented(
            MALFORMED,
            TOO_LARGE,
            INVALID_SPEC,
            KINDS[CampaignRejected],
            KINDS[RunNotFound],
            KINDS[CheckpointNotFound],
            KINDS[GrantExhausted],
            KINDS[IdempotencyKeyReused],
        )
    },
    openapi_extra=json_body("CampaignSpec"),
)
def create_campaign(
    services: ServicesDep,
    caller: Writer,
    body: RawBody,
    background: BackgroundTasks,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store the campaign and queue a run for every cell that no campaign of the project has.

    An equal evaluation of another campaign is shared. A cell whose run the service refuses is
    blocked, with the reason; the others go on.
    """
    spec = parse_campaign(body)
    request = request_key(caller, "/v1/campaigns", idempotency_key, body)
    with services.database.transaction() as session:
        stored = idempotency.begin(session, request) if request else None
        if stored is not None:
            return JSONResponse(stored.response, stored.status, {"Idempotent-Replayed": "true"})
        campaign, run_ids = launch.create(
            session,
            spec,
            caller,
            _admit(services, caller),
            operator=services.settings.run_defaults,
            now=utc_now(),
        )
        response = describe_campaign(session, campaign).model_dump(mode="json")
        if request:
            idempotency.finish(session, request, StoredResponse(status=CREATED, response=response))
    background.add_task(services.task_queue.enqueue, run_ids)
    headers = {"Location": f"/v1/campaigns/{response['id']}"}
    return JSONResponse(response, CREATED, headers, background=background)


@router.get(
    "",
    operation_id="list_campaigns",
    summary="List campaigns, newest first",
    responses={**documented(NO_CAMPAIGN)},
)
def list_campaigns(
    services: ServicesDep,
    caller: Reader,
    before: Annotated[
        str | None, Query(max_length=60, description="Id of the last campaign of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> CampaignList:
    """Return one page of the project's campaigns with the states of their cells."""
    with services.database.transaction() as session:
        last = store.get_campaign(session, caller.project_id, before) if before else None
        rows = store.list_campaigns(session, caller.project_id, before=last, limit=limit + 1)
        return CampaignList(
            data=[summarise_campaign(session, campaign) for campaign in rows[:limit]],
            has_more=len(rows) > limit,
        )


@router.get(
    "/{campaign_id}",
    operation_id="get_campaign",
    summary="Read a campaign",
    responses={**documented(NO_CAMPAIGN)},
)
def get_campaign(services: ServicesDep, caller: Reader, campaign_id: CampaignId) -> CampaignPayload:
    """Return a campaign with every cell, its state and its run."""
    with services.database.transaction() as session:
        campaign = store.get_campaign(session, caller.project_id, campaign_id)
        return describe_campaign(session, campaign)


@router.get(
    "/{campaign_id}/table",
    operation_id="get_campaign_table",
    summary="Read the results of a campaign",
    responses={**documented(NO_CAMPAIGN)},
)
def get_campaign_table(
    services: ServicesDep,
    caller: Reader,
    campaign_id: CampaignId,
    k: Annotated[int, Query(ge=1, le=256, description="Of pass@k in comparisons.")] = 1,
) -> CampaignTable:
    """Return the pass rates with intervals per model, dataset and decoding, and the verdicts.

    Only cells that are done count; repeats are pooled task by task.
    """
    with services.database.transaction() as session:
        campaign = store.get_campaign(session, caller.project_id, campaign_id)
        return CampaignTable.of(build_table(session, campaign, k=k))


@router.post(
    "/{campaign_id}/retry",
    operation_id="retry_campaign",
    summary="Launch the cells again that have no result",
    responses={**documented(NO_CAMPAIGN, KINDS[GrantExhausted])},
)
def retry_campaign(
    services: ServicesDep, caller: Writer, campaign_id: CampaignId, background: BackgroundTasks
) -> CampaignPayload:
    """Launch every retryable cell again, and those that the service refused; repeating is safe."""
    admit = _admit(services, caller)
    return _act(
        services,
        caller,
        campaign_id,
        background,
        lambda session, campaign: launch.retry(session, campaign, admit),
    )


@router.post(
    "/{campaign_id}/cancel",
    operation_id="cancel_campaign",
    summary="Cancel a campaign",
    responses={**documented(NO_CAMPAIGN)},
)
def cancel_campaign(
    services: ServicesDep, caller: Writer, campaign_id: CampaignId, background: BackgroundTasks
) -> CampaignPayload:
    """Cancel the runs under way that no other campaign shares; results so far stay."""
    return _act(
        services,
        caller,
        campaign_id,
        background,
        lambda session, campaign: launch.cancel(
            session, campaign, actor=caller.actor, now=utc_now()
        ),
    )


def _act(
    services: Services,
    caller: Principal,
    campaign_id: str,
    background: BackgroundTasks,
    act: Callable[[Session, Campaign], list[str]],
) -> CampaignPayload:
    """Change a campaign and enqueue the runs whose ids `act` returns."""
    with services.database.transaction() as session:
        campaign = store.get_campaign(session, caller.project_id, campaign_id)
        run_ids = act(session, campaign)
        session.flush()
        payload = describe_campaign(session, campaign)
    background.add_task(services.task_queue.enqueue, run_ids)
    return payload


def _admit(services: Services, caller: Principal) -> launch.Admit:
    admission, now = services.admission, utc_now()

    def admit(session: Session, spec: RunSpec) -> Run:
        return admission.submit_within(session, spec, caller, now=now)

    return admit
