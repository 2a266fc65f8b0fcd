"""`/v1/runners`: runners register, send heartbeats, claim attempts and report their ends."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Path, Response

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import RunnerKey, ServicesDep
from api.runs import store
from api.runs.deadlines import HEARTBEAT_INTERVAL_S, RUNNER_LEASE_S
from api.runs.errors import AttemptNotFound, RunnerNotFound
from api.runs.journal import utc_now
from api.scheduling import runners
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.launch import (
    EndReport,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisteredRunner,
    RegisterRunner,
)

NUM_TO_ENQUEUE = 5
"""Waiting runs to check when a slot may have become free."""

router = APIRouter(
    prefix="/v1/runners",
    tags=["runners"],
    responses={
        **documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID, MALFORMED),
    },
)

RunnerId = Annotated[str, Path(examples=["rnr_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
UNKNOWN = documented(KINDS[RunnerNotFound])


@router.post("", operation_id="register_runner", summary="Register a runner")
def register_runner(
    services: ServicesDep, caller: RunnerKey, body: RegisterRunner, background: BackgroundTasks
) -> RegisteredRunner:
    """Register a runner, or take over its name after a restart."""
    with services.database.transaction() as session:
        runner = runners.register(session, caller.project_id, body, now=utc_now())
        waiting = store.next_waiting(session, caller.project_id, limit=NUM_TO_ENQUEUE)
    background.add_task(services.task_queue.enqueue, waiting)
    return RegisteredRunner(
        runner_id=runner.id,
        heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
        lease_s=RUNNER_LEASE_S,
    )


@router.post(
    "/{runner_id}/heartbeat",
    operation_id="runner_heartbeat",
    summary="Extend the lease, get commands for attempts",
    responses={**UNKNOWN},
)
def heartbeat(
    services: ServicesDep, caller: RunnerKey, runner_id: RunnerId, body: Heartbeat
) -> HeartbeatReply:
    """Return the commands for the runner's attempts; repeated until their end is reported."""
    with services.database.transaction() as session:
        runner = runners.get_runner(session, caller.project_id, runner_id)
        return runners.heartbeat(session, runner, body, now=utc_now())


@router.post(
    "/{runner_id}/claim",
    operation_id="claim_attempt",
    summary="Claim the next attempt",
    response_model=LaunchPlan,
    responses={204: {"description": "No scheduled attempt"}, **UNKNOWN},
)
def claim(services: ServicesDep, caller: RunnerKey, runner_id: RunnerId) -> LaunchPlan | Response:
    """Return the launch plan with the attempt's token and secrets, which no other response has."""
    ingest_url = services.settings.public_url.rstrip("/") + "/v1/ingest"
    with services.database.transaction() as session:
        runner = runners.get_runner(session, caller.project_id, runner_id)
        plan = runners.claim(
            session, runner, ingest_url=ingest_url, keyring=services.keyring, now=utc_now()
        )
    return plan if plan is not None else Response(status_code=204)


@router.post(
    "/{runner_id}/attempts/{attempt_id}/end",
    operation_id="report_attempt_end",
    summary="Report that a trainer exited",
    status_code=204,
    responses={**documented(KINDS[RunnerNotFound], KINDS[AttemptNotFound])},
)
def report_end(
    services: ServicesDep,
    caller: RunnerKey,
    runner_id: RunnerId,
    attempt_id: str,
    body: EndReport,
    background: BackgroundTasks,
) -> None:
    """End the attempt; repeating the report changes nothing."""
    with services.database.transaction() as session:
        runner = runners.get_runner(session, caller.project_id, runner_id)
        run = runners.report_end(session, runner, attempt_id, body, now=utc_now())
        waiting = store.next_waiting(session, caller.project_id, limit=NUM_TO_ENQUEUE)
    background.add_task(services.task_queue.enqueue, [run.id, *waiting])
