"""What a cluster's first node says with its attempt's token: that it lives, and how it ended."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import attempts, store
from api.runs.errors import AttemptSuperseded, UnknownToken
from api.runs.status import AttemptState, RunStatus
from api.runs.transitions import set_deadline
from api.tables import Attempt, Cluster, Run
from trainer.contract.launch import Action, AttemptEnd, NodeReply
from trainer.contract.node import NodeAlive, NodeEnd


def heartbeat(
    session: Session, token: str, *, now: datetime, is_preparing: bool = False
) -> NodeReply:
    """Note that the node lives and return what it is to do. Raises UnknownToken."""
    attempt = _attempt(session, token)
    _lives(session, attempt, is_preparing=is_preparing, now=now)
    return NodeReply(action=wanted(attempt))


def wanted(attempt: Attempt) -> Action | None:
    """Return what the node is to do with its trainer; null: let it train."""
    is_over = attempt.state == AttemptState.ENDED.value
    return "kill" if is_over else attempts.wanted_of(attempt)


def report_end(session: Session, token: str, body: AttemptEnd, *, now: datetime) -> Run:
    """Take the node's word that its trainer is gone; its cluster is not needed any more.

    Repeating it changes nothing. Raises UnknownToken.
    """
    run = store.lock_run(session, _attempt(session, token).run_id)
    attempt = _attempt(session, token)
    _end(session, run, attempt, clusters.of_attempt(session, attempt.id), body, now=now)
    return run


def beat(session: Session, cluster_id: str, body: NodeAlive, *, now: datetime) -> None:
    """Note a beat that was read from the blob store, where it is one more than those before.

    Raises AttemptSuperseded for the beat of a job that does not carry the attempt.
    """
    attempt, cluster = _carried(session, cluster_id, body.nonce)
    if body.beat > (cluster.node_beat or 0):
        _lives(session, attempt, is_preparing=body.is_preparing, now=now)
        cluster.node_beat = body.beat


def read_end(session: Session, cluster_id: str, body: NodeEnd, *, now: datetime) -> Run:
    """Take an end that was read from the blob store; repeating it changes nothing.

    Raises AttemptSuperseded for the word of a job that does not carry the attempt.
    """
    run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
    attempt, cluster = _carried(session, cluster_id, body.nonce)
    _end(session, run, attempt, cluster, body.end, now=now)
    return run


def _end(
    session: Session,
    run: Run,
    attempt: Attempt,
    cluster: Cluster | None,
    body: AttemptEnd,
    *,
    now: datetime,
) -> None:
    actor = f"cluster:{cluster.name}" if cluster is not None else "cluster"
    attempts.report_end(session, run, attempt, body, actor=actor, now=now)
    if cluster is not None:
        clusters.wake(cluster, now=now)


def _lives(session: Session, attempt: Attempt, *, is_preparing: bool, now: datetime) -> None:
    """Note that an attempt's node was heard; while it prepares, its trainer is not late."""
    if attempt.state == AttemptState.ENDED.value:
        return
    if is_preparing:
        run = store.lock_run(session, attempt.run_id)
        if run.status == RunStatus.STARTING.value and run.attempt == attempt.number:
            set_deadline(run, now=now)
    attempt.last_held_at = now


def _carried(session: Session, cluster_id: str, nonce: str) -> tuple[Attempt, Cluster]:
    cluster = session.get_one(Cluster, cluster_id, populate_existing=True)
    if cluster.exchange_nonce != nonce:
        raise AttemptSuperseded(f"Another job carries the attempt of cluster {cluster.name}.")
    return store.get_attempt(session, cluster.attempt_id), cluster


def _attempt(session: Session, token: str) -> Attempt:
    query = select(Attempt).where(Attempt.token_hash == attempts.hash_token(token))
    found = session.scalar(query.execution_options(populate_existing=True))
    if found is None:
        raise UnknownToken("The attempt token is not known.")
    return found
