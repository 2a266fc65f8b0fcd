"""`/v1/runners`: runners register, send heartbeats, claim attempts and report their ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Header, Path, Response
from pydantic.json_schema import SkipJsonSchema
from sqlalchemy.orm import Session

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import RunnerKey, ServicesDep
from api.runs import store
from api.runs.deadlines import HEARTBEAT_INTERVAL_S, RUNNER_LEASE_S
from api.runs.errors import AttemptNotFound, RunnerNameInUse, RunnerNotFound
from api.runs.journal import utc_now
from api.scheduling import runners
from api.tables import Runner
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.launch import (
    RUNNER_IDENTITY,
    EndReport,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisteredRunner,
    RegisterRunner,
    RunFolders,
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

Identity = Annotated[
    # A header is there or not: the word null is none of its values.
    str | SkipJsonSchema[None],
    Header(alias=RUNNER_IDENTITY, min_length=32, max_length=128),
]
RunnerId = Annotated[str, Path(examples=["rnr_06dzk3m8v5q2w9x4t7r1c0n6ab"])]


@dataclass(frozen=True, slots=True)
class RunnerCaller:
    """A runner's request about itself."""

    project_id: str
    runner_id: str
    identity: str | None

    def lock(self, session: Session) -> Runner:
        """Return the runner, locked. Raises RunnerNotFound and RunnerNameInUse."""
        return runners.get_runner(session, self.project_id, self.runner_id, identity=self.identity)


async def runner_caller(
    caller: RunnerKey, runner_id: RunnerId, identity: Identity = None
) -> RunnerCaller:
    """Return who asks, by its key, its registration and its identity."""
    return RunnerCaller(caller.project_id, runner_id, identity)


RegisteredCaller = Annotated[RunnerCaller, Depends(runner_caller)]
CONFLICT = documented(KINDS[RunnerNameInUse])
UNKNOWN = documented(KINDS[RunnerNotFound], KINDS[RunnerNameInUse])


@router.post(
    "", operation_id="register_runner", summary="Register a runner", responses={**CONFLICT}
)
def register_runner(
    services: ServicesDep,
    caller: RunnerKey,
    body: RegisterRunner,
    background: BackgroundTasks,
    identity: Identity = None,
) -> RegisteredRunner:
    """Register a runner, or take over its name after a restart.

    The name of a runner that gave an identity is its own until it is gone and has no attempt left.
    """
    with services.database.transaction() as session:
        runner = runners.register(
            session, caller.project_id, body, identity=identity, now=utc_now()
        )
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
    services: ServicesDep,
    caller: RegisteredCaller,
    body: Heartbeat,
) -> HeartbeatReply:
    """Return the commands for the runner's attempts; repeated until their end is reported."""
    with services.database.transaction() as session:
        runner = caller.lock(session)
        return runners.heartbeat(session, runner, body, now=utc_now())


@router.post(
    "/{runner_id}/claim",
    operation_id="claim_attempt",
    summary="Claim the next attempt",
    response_model=LaunchPlan,
    responses={204: {"description": "No scheduled attempt"}, **UNKNOWN},
)
def claim(services: ServicesDep, caller: RegisteredCaller) -> LaunchPlan | Response:
    """Return the launch plan with the attempt's token and secrets, which no other response has."""
    ingest_url = services.settings.public_url.rstrip("/") + "/v1/ingest"
    with services.database.transaction() as session:
        runner = caller.lock(session)
        plan = runners.claim(
            session, runner, ingest_url=ingest_url, keyring=services.keyring, now=utc_now()
        )
    return plan if plan is not None else Response(status_code=204)


@router.post(
    "/{runner_id}/deleted-runs",
    operation_id="list_deleted_runs",
    summary="Learn which runs were deleted",
    responses={**UNKNOWN},
)
def list_deleted_runs(
    services: ServicesDep, caller: RegisteredCaller, body: RunFolders
) -> RunFolders:
    """Return those of the runs that were deleted: the runner deletes their folders."""
    with services.database.transaction() as session:
        runner = caller.lock(session)
        return RunFolders(run_ids=tuple(runners.deleted_among(session, runner, body.run_ids)))


@router.post(
    "/{runner_id}/attempts/{attempt_id}/end",
    operation_id="report_attempt_end",
    summary="Report that a trainer exited",
    status_code=204,
    responses={**UNKNOWN, **documented(KINDS[AttemptNotFound])},
)
def report_end(
    services: ServicesDep,
    caller: RegisteredCaller,
    attempt_id: str,
    body: EndReport,
    background: BackgroundTasks,
) -> None:
    """End the attempt; repeating the report changes nothing."""
    with services.database.transaction() as session:
        runner = caller.lock(session)
        run = runners.report_end(session, runner, attempt_id, body, now=utc_now())
        waiting = store.next_waiting(session, caller.project_id, limit=NUM_TO_ENQUEUE)
    background.add_task(services.task_queue.enqueue, [run.id, *waiting])
