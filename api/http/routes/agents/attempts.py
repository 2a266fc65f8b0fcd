"""`/v1/attempts`: the first node of a rented cluster takes its attempt, beats, reports its end."""

from __future__ import annotations

from fastapi import APIRouter, BackgroundTasks

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import ServicesDep, Token
from api.runs import store
from api.runs.errors import AttemptNotClaimed, AttemptSuperseded, UnknownToken
from api.runs.journal import utc_now
from api.scheduling.rented import nodes
from api.scheduling.rented.bootstrap import claim
from api.tables.identity import NotAuthenticated
from hillclimb.protocol.launch import BootstrapClaim, EndReport, NodeBeat, NodePlan, NodeReply

RING_AHEAD = 5
"""Waiting runs to look at when a cluster may have become free."""
UNKNOWN = (INVALID, MALFORMED, KINDS[UnknownToken])

router = APIRouter(prefix="/v1/attempts", tags=["nodes"], responses={**documented(*UNKNOWN)})
NEEDS_TOKEN = documented(*UNKNOWN, KINDS[NotAuthenticated])


@router.post(
    "/claim",
    operation_id="claim_cluster_attempt",
    summary="Take the attempt of a cluster",
    responses={**documented(KINDS[AttemptSuperseded], KINDS[AttemptNotClaimed])},
)
def claim_cluster_attempt(services: ServicesDep, body: BootstrapClaim) -> NodePlan:
    """Return what to train, with the attempt's token and the operator's secrets for nodes.

    One job gets it. The same job, by its nonce, may ask again when an answer was lost: its new
    token replaces the one before. `attempt_superseded` means: leave. Its other nodes (`rank`) get
    the secrets alone, once the first has the attempt.
    """
    settings = services.settings
    reached = (settings.node_api_url or settings.public_url).rstrip("/")
    secret = settings.secret_key.get_secret_value()
    with services.database.transaction() as session:
        return claim(
            session,
            body,
            secret=secret,
            ingest_url=f"{reached}/v1/ingest",
            secrets=services.node_secrets,
            now=utc_now(),
        )


@router.post(
    "/heartbeat",
    operation_id="node_heartbeat",
    summary="Say that the node lives, hear what to do",
    responses={**NEEDS_TOKEN},
)
def heartbeat(services: ServicesDep, token: Token, body: NodeBeat) -> NodeReply:
    """Return what to do with the trainer; repeated until its end is reported.

    The bearer is the attempt's token. An attempt that is over is to be killed.
    """
    with services.database.transaction() as session:
        return nodes.heartbeat(session, token, is_preparing=body.is_preparing, now=utc_now())


@router.post(
    "/end",
    operation_id="report_node_end",
    summary="Report that the trainer is gone",
    status_code=204,
    responses={**NEEDS_TOKEN},
)
def report_end(
    services: ServicesDep, token: Token, body: EndReport, background: BackgroundTasks
) -> None:
    """End the attempt, and so its cluster; repeating the report changes nothing.

    The bearer is the attempt's token.
    """
    with services.database.transaction() as session:
        run = nodes.report_end(session, token, body, now=utc_now())
        waiting = store.next_waiting(session, run.project_id, limit=RING_AHEAD)
    background.add_task(services.task_queue.enqueue, [run.id, *waiting])
