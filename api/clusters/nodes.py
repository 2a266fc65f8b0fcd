"""What a cluster's first node says with its attempt's token: that it lives, and how it ended."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import attempts, store
from api.runs.errors import UnknownToken
from api.runs.status import AttemptState
from api.tables import Attempt, Run
from trainer.contract.launch import AttemptEnd, NodeReply


def heartbeat(session: Session, token: str, *, now: datetime) -> NodeReply:
    """Note that the node lives and return what it is to do. Raises UnknownToken."""
    attempt = _attempt(session, token)
    if attempt.state == AttemptState.ENDED.value:
        return NodeReply(action="kill")
    attempt.last_held_at = now
    return NodeReply(action=attempts.wanted_of(attempt))


def report_end(session: Session, token: str, body: AttemptEnd, *, now: datetime) -> Run:
    """Take the node's word that its trainer is gone; its cluster is not needed any more.

    Repeating it changes nothing. Raises UnknownToken.
    """
    run = store.lock_run(session, _attempt(session, token).run_id)
    attempt = _attempt(session, token)
    cluster = clusters.of_attempt(session, attempt.id)
    actor = f"cluster:{cluster.name}" if cluster is not None else "cluster"
    attempts.report_end(session, run, attempt, body, actor=actor, now=now)
    if cluster is not None:
        clusters.wake(cluster, now=now)
    return run


def _attempt(session: Session, token: str) -> Attempt:
    query = select(Attempt).where(Attempt.token_hash == attempts.hash_token(token))
    found = session.scalar(query.execution_options(populate_existing=True))
    if found is None:
        raise UnknownToken("The attempt token is not known.")
    return found
