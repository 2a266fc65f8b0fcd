"""How a cluster's first node gets in: a code that is good once becomes the attempt's token.

The code is what travels with a launch, through SkyPilot's database too; what it buys is given to
one job only, so a launch that happened twice trains once.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.clusters.store import ClusterState
from api.runs import attempts, store
from api.runs.errors import (
    AttemptNotFound,
    AttemptNotTaken,
    AttemptSuperseded,
    UnknownToken,
)
from api.runs.status import AttemptState
from api.runs.stored_spec import spec_of
from api.tables import Attempt, Run
from trainer.contract.launch import ExchangeCode, NodePlan
from trainer.contract.spec import RunSpec

CODE_PREFIX = "hcx_"
UNDER_WAY = frozenset(
    {ClusterState.WANTED.value, ClusterState.LAUNCHING.value, ClusterState.UP.value}
)


def exchange_code(attempt_id: str, *, secret: str) -> str:
    """Return the code of an attempt's cluster: made of the service's secret, stored nowhere."""
    mac = hmac.new(secret.encode(), f"exchange:{attempt_id}".encode(), hashlib.sha256)
    return CODE_PREFIX + mac.hexdigest()


def exchange(
    session: Session,
    body: ExchangeCode,
    *,
    secret: str,
    ingest_url: str,
    now: datetime,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> NodePlan:
    """Give the attempt to the job that asks and return its plan, with a fresh token.

    `secrets` are the operator's for nodes; nodes that cannot reach the API get no `ingest_url`.
    The same job (`nonce`) may ask again: its answer may have been lost, and only the newest token
    is good.

    Raises:
        UnknownToken: not the code of that attempt's cluster.
        AttemptSuperseded: the attempt is over, another job carries it, or a node of this rank was
            answered already.
        AttemptNotTaken: a further node asks before the first.
    """
    expected = exchange_code(body.attempt_id, secret=secret)
    if not hmac.compare_digest(expected.encode(), body.code.encode()):
        raise UnknownToken("The code is not that of the attempt's cluster.")
    if body.rank:
        return _share(session, body, secrets)
    try:
        run, attempt, token = admit(session, body.attempt_id, body.nonce, now=now)
    except AttemptNotFound as error:
        raise UnknownToken(str(error)) from error
    plan = node_plan(run, attempt)
    reachable = reaches_api(plan.spec)
    more = {"attempt_token": token, "secrets": dict(secrets)}
    return plan.model_copy(update=more | {"ingest_url": ingest_url if reachable else ""})


def admit(
    session: Session, attempt_id: str, nonce: str, *, now: datetime
) -> tuple[Run, Attempt, str]:
    """Give the attempt to the job with that nonce; returns it with its newest token.

    Raises:
        AttemptNotFound: there is no such attempt.
        AttemptSuperseded: the attempt is over, or another job carries it.
    """
    found = store.get_attempt(session, attempt_id)
    run = store.lock_run(session, found.run_id)
    attempt = store.get_attempt(session, attempt_id)
    cluster = clusters.of_attempt(session, attempt.id)
    if cluster is None or cluster.state not in UNDER_WAY or not _is_current(attempt, run.attempt):
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} is over: leave.")
    if cluster.exchange_nonce not in (None, nonce):
        raise AttemptSuperseded(f"Another job carries attempt {attempt.number}: leave.")
    if cluster.exchange_nonce is None:
        cluster.exchange_nonce = nonce
        token = attempts.claim_for_cluster(session, run, attempt, name=cluster.name, now=now)
    else:
        token = attempts.renew_token(attempt)
    return run, attempt, token


def node_plan(run: Run, attempt: Attempt) -> NodePlan:
    """Return what a node is to do, without anything secret in it; raises SpecOutdated."""
    return NodePlan(
        run_id=run.id,
        attempt=attempt.number,
        attempt_id=attempt.id,
        attempt_token="",
        ingest_url="",
        spec=spec_of(run),
        resume_from=attempt.resume_from,
    )


def _share(session: Session, body: ExchangeCode, secrets: Mapping[str, str]) -> NodePlan:
    """Return what a further node of the job needs: what is secret, but no token."""
    try:
        attempt = store.get_attempt(session, body.attempt_id)
    except AttemptNotFound as error:
        raise UnknownToken(str(error)) from error
    run = store.lock_run(session, attempt.run_id)
    cluster = clusters.of_attempt(session, attempt.id)
    if cluster is None or cluster.state not in UNDER_WAY or not _is_current(attempt, run.attempt):
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} is over: leave.")
    if cluster.exchange_nonce is None:
        raise AttemptNotTaken(f"Node {body.rank} is early: the first one has not asked yet.")
    if cluster.exchange_nonce != body.nonce:
        raise AttemptSuperseded(f"Another job carries attempt {attempt.number}: leave.")
    if body.rank >= cluster.num_nodes:
        raise AttemptSuperseded(f"There is no node {body.rank} of {cluster.num_nodes}: leave.")
    known = cluster.exchange_members
    if known.get(str(body.rank), body.member) != body.member:
        raise AttemptSuperseded(f"Another process of node {body.rank} was answered: leave.")
    cluster.exchange_members = known | {str(body.rank): body.member}
    return node_plan(run, attempt).model_copy(update={"secrets": dict(secrets)})


def reaches_api(spec: RunSpec) -> bool:
    """Say whether the nodes of a run can reach the API."""
    sky = spec.backend.skypilot
    return sky is not None and sky.api_reachable


def _is_current(attempt: Attempt, newest: int) -> bool:
    return attempt.number == newest and attempt.state != AttemptState.ENDED.value
