"""How a cluster's first node gets in: a code that is good once becomes the attempt's token.

The code is what travels with a launch, through SkyPilot's database too; what it buys is given to
one job only, so a launch that happened twice trains once.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.clusters.store import ClusterState
from api.runs import attempts, store
from api.runs.errors import AttemptNotFound, AttemptSuperseded, UnknownToken
from api.runs.status import AttemptState
from api.tables import Attempt
from trainer.contract.launch import ExchangeCode, LaunchPlan
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
    session: Session, body: ExchangeCode, *, secret: str, ingest_url: str, now: datetime
) -> LaunchPlan:
    """Give the attempt to the job that asks and return its plan, with a fresh token.

    The same job (`nonce`) may ask again: its answer may have been lost, and only the newest token
    is good.

    Raises:
        UnknownToken: not the code of that attempt's cluster.
        AttemptSuperseded: the attempt is over, or another job carries it.
    """
    expected = exchange_code(body.attempt_id, secret=secret)
    if not hmac.compare_digest(expected, body.code):
        raise UnknownToken("The code is not that of the attempt's cluster.")
    try:
        found = store.get_attempt(session, body.attempt_id)
    except AttemptNotFound as error:
        raise UnknownToken(str(error)) from error
    run = store.lock_run(session, found.run_id)
    attempt = store.get_attempt(session, body.attempt_id)
    cluster = clusters.of_attempt(session, attempt.id)
    if cluster is None or cluster.state not in UNDER_WAY or not _is_current(attempt, run.attempt):
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} is over: leave.")
    if cluster.exchange_nonce not in (None, body.nonce):
        raise AttemptSuperseded(f"Another job carries attempt {attempt.number}: leave.")
    if cluster.exchange_nonce is None:
        cluster.exchange_nonce = body.nonce
        token = attempts.claim_for_cluster(session, run, attempt, name=cluster.name, now=now)
    else:
        token = attempts.renew_token(attempt)
    return LaunchPlan(
        run_id=run.id,
        attempt=attempt.number,
        attempt_id=attempt.id,
        attempt_token=token,
        ingest_url=ingest_url,
        spec=RunSpec.model_validate(run.spec),
        resume_from=attempt.resume_from,
    )


def _is_current(attempt: Attempt, newest: int) -> bool:
    return attempt.number == newest and attempt.state != AttemptState.ENDED.value
