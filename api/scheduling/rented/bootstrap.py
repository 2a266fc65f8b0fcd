"""Bootstrap tokens: the job of a cluster exchanges one for its attempt's token and plan.

The bootstrap token travels with the launch, also through SkyPilot's database; it is exchanged for
one job only, so a launch that happened twice trains once.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.clusters.secrets import needed_secrets
from api.clusters.store import ClusterState
from api.runs import store
from api.runs.errors import (
    AttemptNotClaimed,
    AttemptNotFound,
    AttemptSuperseded,
    UnknownToken,
)
from api.runs.status import AttemptState
from api.runs.stored_spec import spec_of
from api.scheduling import attempts
from api.tables import Attempt, Run
from api.tables.access.secrets.keyring import NO_KEYS, Keyring
from api.tables.access.secrets.store import secrets_of
from hillclimb.protocol.launch import BootstrapClaim, NodePlan
from hillclimb.spec.rules.addresses import Hosts
from hillclimb.spec.rules.version_skew import keys_at_default
from hillclimb.spec.run import RunSpec

CODE_PREFIX = "hcx_"
UNDER_WAY = frozenset(
    {ClusterState.PENDING.value, ClusterState.PROVISIONING.value, ClusterState.RUNNING.value}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSources:
    """The sources of a node's secrets: the operator's, and the project's, which go first."""

    operators: Mapping[str, str] = field(default_factory=dict, repr=False)
    keyring: Keyring = NO_KEYS
    hosts: Hosts = field(default_factory=dict)
    """Hosts to which specs may send the operator's `RUN_SECRET_…`."""

    def read(self, session: Session, run: Run, spec: RunSpec, *, now: datetime) -> dict[str, str]:
        """Return the variables that a run's trainer needs.

        Raises SecretMissing, SecretNotForHost and SecretUnreadable.
        """
        project_id = run.project_id
        own = secrets_of(session, self.keyring, spec, project_id=project_id, now=now)
        return needed_secrets(spec, self.operators, self.hosts) | own


NO_SECRETS = SecretSources()


def bootstrap_token(attempt_id: str, *, secret: str) -> str:
    """Return the bootstrap token of an attempt: an HMAC of the service's secret, not stored."""
    mac = hmac.new(secret.encode(), f"bootstrap:{attempt_id}".encode(), hashlib.sha256)
    return CODE_PREFIX + mac.hexdigest()


def claim(
    session: Session,
    body: BootstrapClaim,
    *,
    secret: str,
    ingest_url: str,
    now: datetime,
    secrets: SecretSources = NO_SECRETS,
) -> NodePlan:
    """Assign the attempt to the job and return its plan, with a fresh token.

    Nodes that cannot reach the API get no `ingest_url`. The same job (`nonce`) may repeat the
    request: its response may have been lost, and only the newest token is valid.

    Raises:
        UnknownToken: not the bootstrap token of that attempt's cluster.
        AttemptSuperseded: the attempt has ended, another job has claimed it, or another process
            of this rank has its secrets already.
        AttemptNotClaimed: a further node comes before the first.
        SecretUnreadable: a secret of the spec does not decrypt.
    """
    expected = bootstrap_token(body.attempt_id, secret=secret)
    if not hmac.compare_digest(expected.encode(), body.code.encode()):
        raise UnknownToken("This is not the bootstrap token of the attempt's cluster.")
    if body.rank:
        return _share(session, body, secrets, now=now)
    try:
        run, attempt, token = admit(session, body.attempt_id, body.nonce, now=now)
    except AttemptNotFound as error:
        raise UnknownToken(str(error)) from error
    plan = node_plan(session, run, attempt)
    reachable = reaches_api(plan.spec)
    values = secrets.read(session, run, plan.spec, now=now)
    more: dict[str, object] = {"attempt_token": token, "secrets": values}
    more["traceparent"] = attempts.trace_claim(session, run, attempt, now=now)
    return plan.model_copy(update=more | {"ingest_url": ingest_url if reachable else ""})


def admit(
    session: Session, attempt_id: str, nonce: str, *, now: datetime
) -> tuple[Run, Attempt, str]:
    """Assign the attempt to the job with that nonce; returns it with its newest token.

    Raises:
        AttemptNotFound: there is no such attempt.
        AttemptSuperseded: the attempt has ended, or another job has claimed it.
    """
    run = store.lock_run(session, store.get_attempt(session, attempt_id).run_id)
    attempt = store.get_attempt(session, attempt_id)
    cluster = clusters.of_attempt(session, attempt.id)
    if cluster is None or cluster.state not in UNDER_WAY or not _is_current(attempt, run.attempt):
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} has ended: exit.")
    if cluster.bootstrap_nonce not in (None, nonce):
        raise AttemptSuperseded(f"Another job has claimed attempt {attempt.number}: exit.")
    if cluster.bootstrap_nonce is None:
        cluster.bootstrap_nonce = nonce
        token = attempts.claim_for_cluster(session, run, attempt, name=cluster.name, now=now)
    else:
        token = attempts.renew_token(attempt)
    return run, attempt, token


def node_plan(session: Session, run: Run, attempt: Attempt) -> NodePlan:
    """Return the plan of a node, without its secrets; raises SpecOutdated."""
    spec = spec_of(run)
    return NodePlan(
        run_id=run.id,
        attempt=attempt.number,
        attempt_id=attempt.id,
        attempt_token="",
        ingest_url="",
        spec=spec,
        at_default=keys_at_default(spec),
        resume_from=attempt.resume_from,
        manifests=attempts.manifests(session, run, spec),
    )


def _share(
    session: Session, body: BootstrapClaim, secrets: SecretSources, *, now: datetime
) -> NodePlan:
    """Return the plan of a further node of the job: with the secrets, without a token."""
    try:
        attempt = store.get_attempt(session, body.attempt_id)
    except AttemptNotFound as error:
        raise UnknownToken(str(error)) from error
    run = store.lock_run(session, attempt.run_id)
    cluster = clusters.of_attempt(session, attempt.id)
    if cluster is None or cluster.state not in UNDER_WAY or not _is_current(attempt, run.attempt):
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} has ended: exit.")
    if cluster.bootstrap_nonce is None:
        raise AttemptNotClaimed(
            f"Node {body.rank} is early: the first node has not claimed the attempt yet."
        )
    if cluster.bootstrap_nonce != body.nonce:
        raise AttemptSuperseded(f"Another job has claimed attempt {attempt.number}: exit.")
    if body.rank >= cluster.num_nodes:
        raise AttemptSuperseded(f"There is no node {body.rank} of {cluster.num_nodes}: exit.")
    members = cluster.bootstrapped_members
    if members.get(str(body.rank), body.member) != body.member:
        raise AttemptSuperseded(f"Another process of node {body.rank} has the secrets: exit.")
    cluster.bootstrapped_members = members | {str(body.rank): body.member}
    plan = node_plan(session, run, attempt)
    return plan.model_copy(update={"secrets": secrets.read(session, run, plan.spec, now=now)})


def reaches_api(spec: RunSpec) -> bool:
    """Return True when the nodes of a run can reach the API."""
    sky = spec.backend.skypilot
    return sky is not None and sky.api_reachable


def _is_current(attempt: Attempt, newest: int) -> bool:
    return attempt.number == newest and attempt.state != AttemptState.ENDED.value
