"""What a cluster's tick means for its run: the ledger, its events, the end of its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.clusters import leases
from api.clusters.budgets import allowances
from api.notices.outbox import CLUSTER_NOT_ENDED, NO_PRICE
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.errors import SpecOutdated
from api.runs.journal import Draft, append
from api.runs.status import CLUSTER_PROVISIONING_S, RunStatus
from api.runs.stored_spec import spec_of
from api.tables import Cluster, Run
from trainer.contract.reasons import ReasonCode
from worker.clusters import rows
from worker.clusters.base import OfferTried, RequestReport, RequestState
from worker.clusters.decide import STUCK
from worker.clusters.learning import learn
from worker.clusters.plans import candidates_of
from worker.clusters.view import Cause, ClusterState, ClusterView
from worker.parts import Parts

REASON_OF: dict[Cause, ReasonCode] = {
    Cause.NO_CAPACITY: ReasonCode.NO_CAPACITY,
    Cause.UNSATISFIABLE: ReasonCode.CLUSTER_REFUSED,
    Cause.REFUSED: ReasonCode.CLUSTER_REFUSED,
    Cause.MISMATCH: ReasonCode.LAUNCH_FAILED,
    Cause.SETUP_FAILED: ReasonCode.LAUNCH_FAILED,
    Cause.LAUNCH_FAILED: ReasonCode.LAUNCH_FAILED,
    Cause.CLUSTER_LOST: ReasonCode.CLUSTER_LOST,
    Cause.JOB_ENDED: ReasonCode.CLUSTER_LOST,
    Cause.WALL_CLOCK_LIMIT: ReasonCode.CLUSTER_TIME_UP,
}

OVER = (RequestState.DONE, RequestState.FAILED)


def conclude(
    session: Session, run: Run | None, cluster: Cluster, view: ClusterView, *, now: datetime
) -> None:
    """Write a view into its row, which is held.

    `run`, locked, where the state is another one: it is told, and an attempt whose cluster failed
    ends.
    """
    rows.write(cluster, view, now=now)
    if run is None:
        return
    _tell(session, run, cluster, now=now)
    _warn_of_no_price(session, run, cluster, now=now)
    _give_time(run, cluster, now=now)
    if view.cause is not None:
        attempt = store.get_attempt(session, cluster.attempt_id)
        end = End(reason=REASON_OF[view.cause], message=view.message or "")
        attempts.end_attempt(session, run, attempt, end, now=now)


def announce(
    parts: Parts, cluster_id: str, epoch: int, report: RequestReport, *, now: datetime
) -> None:
    """Write what a launch has tried so far into the ledger, each with its event."""
    tried = report.offers or (report.error.offers if report.error else ())
    if not tried:
        return
    with parts.database.transaction() as session:
        run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
        cluster = leases.hold(session, cluster_id, epoch)
        fresh = rows.write_offers(session, cluster, tried, now=now)
        if fresh:
            _give_time(run, cluster, now=now)
        append(session, run, [_tried(run, each, now=now) for each in fresh])
        if report.state in OVER:
            _learn_from(session, run, tried, now=now)


def _learn_from(session: Session, run: Run, tried: Sequence[OfferTried], *, now: datetime) -> None:
    """Remember what was sold out; nothing where an update refuses the spec that asked for it."""
    try:
        spec = spec_of(run)
    except SpecOutdated:
        return
    sky = spec.backend.skypilot
    assert sky is not None, run.id
    is_ordered = sky.choose == "ordered"
    learn(session, candidates_of(spec, sky), tried, is_ordered=is_ordered, now=now)


def warn_of_stuck(parts: Parts, cluster_id: str, epoch: int, why: str, *, now: datetime) -> None:
    """Tell a run once that a cluster of it does not go, and may be paid for; raises LeaseLost."""
    with parts.database.transaction() as session:
        run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
        cluster = leases.hold(session, cluster_id, epoch)
        cluster.end_warned_at = now
        message = (
            f"The cluster {cluster.name} was to end {STUCK.total_seconds() / 60:.0f} minutes ago,"
            f" is not known to be gone, and may cost money: {why or 'nobody says why'}."
        )
        data = {"code": CLUSTER_NOT_ENDED, "message": message}
        append(session, run, [Draft(type="run.warning", at=now, data=data)])


def _give_time(run: Run, cluster: Cluster, *, now: datetime) -> None:
    """A launch has its full time from each sign of progress; without one the run only waits."""
    if run.status != RunStatus.PROVISIONING.value:
        return
    is_under_way = cluster.state in (ClusterState.LAUNCHING.value, ClusterState.UP.value)
    limit = timedelta(seconds=CLUSTER_PROVISIONING_S)
    run.deadline_at = now + limit if is_under_way else None


def _tell(session: Session, run: Run, cluster: Cluster, *, now: datetime) -> None:
    data = {
        "cluster": cluster.name,
        "state": cluster.state,
        "infra": cluster.infra,
        "region": cluster.region,
        "sku": cluster.sku,
        "num_nodes": cluster.num_nodes,
        "hourly_usd": cluster.hourly_usd,
        "cause": cluster.cause,
        "message": cluster.message,
    }
    draft = Draft(type="cluster.changed", at=now, attempt=run.attempt or None, data=data)
    append(session, run, [draft])


def _warn_of_no_price(session: Session, run: Run, cluster: Cluster, *, now: datetime) -> None:
    """Tell a run that has money to spend, but nobody knows how fast: nothing else would say so."""
    if cluster.state != ClusterState.UP.value or cluster.hourly_usd is not None:
        return
    owners = [each.owner for each in allowances(session, run, now=now) if each.usd is not None]
    if not owners:
        return
    message = (
        f"What the cluster {cluster.name} costs is not known: while that is so it does not count"
        f" in the USD of the {' and the '.join(owners)}'s budget, which hours alone bound."
    )
    data = {"code": NO_PRICE, "message": message}
    draft = Draft(type="run.warning", at=now, attempt=run.attempt or None, data=data)
    append(session, run, [draft])


def _tried(run: Run, offer: OfferTried, *, now: datetime) -> Draft:
    data = {
        "infra": offer.infra,
        "region": offer.region,
        "sku": offer.sku,
        "hourly_usd": offer.hourly_usd,
        "outcome": offer.outcome.value,
        "seconds": offer.seconds,
        "error_class": offer.error_class,
        "message": offer.message,
    }
    return Draft(type="cluster.offer", at=now, attempt=run.attempt or None, data=data)
