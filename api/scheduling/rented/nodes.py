"""Heartbeats and end reports of a cluster's first node, by API or through the blob store."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import store
from api.runs.errors import AttemptSuperseded, UnknownToken
from api.runs.status import AttemptState, RunStatus
from api.runs.transitions import set_deadline
from api.scheduling import attempts
from api.tables import Attempt, Cluster, Run
from hillclimb.protocol.launch import Action, EndReport, NodeReply
from hillclimb.protocol.node_messages import NodeAlive, NodeEnd


def heartbeat(
    session: Session, token: str, *, now: datetime, is_preparing: bool = False
) -> NodeReply:
    """Record a heartbeat and return the requested action. Raises UnknownToken."""
    attempt = _attempt(session, token)
    _record_heartbeat(session, attempt, is_preparing=is_preparing, now=now)
    return NodeReply(action=requested_action(attempt))


def requested_action(attempt: Attempt) -> Action | None:
    """Return the action that the node is to take on its trainer; null: none."""
    has_ended = attempt.state == AttemptState.ENDED.value
    return "kill" if has_ended else attempts.requested_action(attempt)


def report_end(session: Session, token: str, body: EndReport, *, now: datetime) -> Run:
    """Record the node's report that its trainer exited; its cluster becomes due.

    Idempotent. Raises UnknownToken.
    """
    run = store.lock_run(session, _attempt(session, token).run_id)
    attempt = _attempt(session, token)
    _end(session, run, attempt, clusters.of_attempt(session, attempt.id), body, now=now)
    return run


def record_heartbeat(session: Session, cluster_id: str, body: NodeAlive, *, now: datetime) -> None:
    """Record a heartbeat read from the blob store, where each has a higher number.

    Raises AttemptSuperseded for a job that has not claimed the attempt.
    """
    attempt, cluster = _claimed_by(session, cluster_id, body.nonce)
    if body.beat > (cluster.node_beat or 0):
        _record_heartbeat(session, attempt, is_preparing=body.is_preparing, now=now)
        cluster.node_beat = body.beat


def record_end(session: Session, cluster_id: str, body: NodeEnd, *, now: datetime) -> Run:
    """Record an end report read from the blob store; idempotent.

    Raises AttemptSuperseded for a job that has not claimed the attempt.
    """
    run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
    attempt, cluster = _claimed_by(session, cluster_id, body.nonce)
    _end(session, run, attempt, cluster, body.end, now=now)
    return run


def _end(
    session: Session,
    run: Run,
    attempt: Attempt,
    cluster: Cluster | None,
    body: EndReport,
    *,
    now: datetime,
) -> None:
    actor = f"cluster:{cluster.name}" if cluster is not None else "cluster"
    attempts.report_end(session, run, attempt, body, actor=actor, now=now)
    if cluster is not None:
        clusters.wake(cluster, now=now)


def _record_heartbeat(
    session: Session, attempt: Attempt, *, is_preparing: bool, now: datetime
) -> None:
    """Record that an attempt's node is alive; while it prepares, restart the deadline."""
    if attempt.state == AttemptState.ENDED.value:
        return
    if is_preparing:
        run = store.lock_run(session, attempt.run_id)
        if run.status == RunStatus.STARTING.value and run.attempt == attempt.number:
            set_deadline(run, now=now)
    attempt.last_held_at = now


def _claimed_by(session: Session, cluster_id: str, nonce: str) -> tuple[Attempt, Cluster]:
    cluster = session.get_one(Cluster, cluster_id, populate_existing=True)
    if cluster.bootstrap_nonce != nonce:
        raise AttemptSuperseded(f"Another job has claimed the attempt of cluster {cluster.name}.")
    return store.get_attempt(session, cluster.attempt_id), cluster


def _attempt(session: Session, token: str) -> Attempt:
    query = select(Attempt).where(Attempt.token_hash == attempts.hash_token(token))
    attempt = session.scalar(query.execution_options(populate_existing=True))
    if attempt is None:
        raise UnknownToken("The attempt token is not known.")
    return attempt
