"""`/v1/attempts`: a cluster's first node claims its attempt, sends heartbeats, reports its end."""

from __future__ import annotations

from fastapi import APIRouter, BackgroundTasks

from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import ServicesDep, Token
from api.runs import store
from api.runs.errors import AttemptNotClaimed, AttemptSuperseded, UnknownToken
from api.runs.journal import utc_now
from api.scheduling.rented import nodes
from api.scheduling.rented.bootstrap import SecretSources, claim
from api.tables.access.identity import NotAuthenticated
from api.tables.access.secrets.errors import SecretUnreadable
from hillclimb.protocol.launch import BootstrapClaim, EndReport, NodeBeat, NodePlan, NodeReply

NUM_TO_ENQUEUE = 5
"""Waiting runs to check when a cluster may have become available."""
UNKNOWN = (INVALID, MALFORMED, KINDS[UnknownToken])

router = APIRouter(prefix="/v1/attempts", tags=["nodes"], responses={**documented(*UNKNOWN)})
NEEDS_TOKEN = documented(*UNKNOWN, KINDS[NotAuthenticated])


@router.post(
    "/claim",
    operation_id="claim_cluster_attempt",
    summary="Claim the attempt of a cluster",
    responses={
        **documented(KINDS[AttemptSuperseded], KINDS[AttemptNotClaimed], KINDS[SecretUnreadable])
    },
)
def claim_cluster_attempt(services: ServicesDep, body: BootstrapClaim) -> NodePlan:
    """Return the plan of the attempt, with its token, its secrets and the operator's.

    Only one job gets it. The same job, by its nonce, may repeat the request if a response was
    lost: the new token replaces the previous one. On `attempt_superseded` the node exits. Further
    nodes (`rank`) get only the secrets, once the first node has claimed the attempt.
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
            secrets=SecretSources(
                operators=services.node_secrets,
                keyring=services.keyring,
                hosts=services.settings.operators_hosts,
            ),
            now=utc_now(),
        )


@router.post(
    "/heartbeat",
    operation_id="node_heartbeat",
    summary="Send a node's heartbeat, get the action to take",
    responses={**NEEDS_TOKEN},
)
def heartbeat(services: ServicesDep, token: Token, body: NodeBeat) -> NodeReply:
    """Return the action to take on the trainer; repeated until its end is reported.

    The bearer is the attempt's token. The trainer of an ended attempt must be killed.
    """
    with services.database.transaction() as session:
        return nodes.heartbeat(session, token, is_preparing=body.is_preparing, now=utc_now())


@router.post(
    "/end",
    operation_id="report_node_end",
    summary="Report that the trainer exited",
    status_code=204,
    responses={**NEEDS_TOKEN},
)
def report_end(
    services: ServicesDep, token: Token, body: EndReport, background: BackgroundTasks
) -> None:
    """End the attempt and thereby its cluster; repeating the report changes nothing.

    The bearer is the attempt's token.
    """
    with services.database.transaction() as session:
        run = nodes.report_end(session, token, body, now=utc_now())
        waiting = store.next_waiting(session, run.project_id, limit=NUM_TO_ENQUEUE)
    background.add_task(services.task_queue.enqueue, [run.id, *waiting])
