"""Effects of a cluster's tick on its run: the ledger of offers, events, the end of its attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.clusters import leases
from api.clusters.budgets import allowances
from api.runs import store
from api.runs.deadlines import CLUSTER_PROVISIONING_S
from api.runs.errors import SpecOutdated
from api.runs.journal import Draft, append
from api.runs.outbox import CLUSTER_NOT_ENDED, NO_PRICE
from api.runs.status import RunStatus
from api.runs.stored_spec import spec_of
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import Cluster, Run
from hillclimb.protocol.end_reasons import ReasonCode
from worker.clusters import rows
from worker.clusters.capacity_hints import update_exclusions
from worker.clusters.plans import candidates_of
from worker.clusters.view import Cause, ClusterState, ClusterView
from worker.context import WorkerContext
from worker.deadlines import TERMINATION_OVERDUE
from worker.skypilot.port import RequestReport, RequestState, TriedOffer

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

FINISHED = (RequestState.DONE, RequestState.FAILED)


def apply_to_run(
    session: Session, run: Run | None, cluster: Cluster, view: ClusterView, *, now: datetime
) -> None:
    """Write a view into its locked row, and apply a new state to the run.

    `run` is locked and passed only where the state has changed: it gets an event, and where the
    cluster failed its attempt ends.
    """
    rows.write(cluster, view, now=now)
    if run is None:
        return
    _emit_changed(session, run, cluster, now=now)
    _warn_of_no_price(session, run, cluster, now=now)
    _reset_deadline(run, cluster, now=now)
    if view.cause is not None:
        attempt = store.get_attempt(session, cluster.attempt_id)
        end = AttemptEnd(reason=REASON_OF[view.cause], message=view.message or "")
        attempts.end_attempt(session, run, attempt, end, now=now)


def record_offers(
    context: WorkerContext, cluster_id: str, epoch: int, report: RequestReport, *, now: datetime
) -> None:
    """Add the offers a launch has tried so far to the ledger, with an event for each new one."""
    offers = report.offers or (report.error.offers if report.error else ())
    if not offers:
        return
    with context.database.transaction() as session:
        run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
        cluster = leases.hold(session, cluster_id, epoch)
        fresh = rows.write_offers(session, cluster, offers, now=now)
        if fresh:
            _reset_deadline(run, cluster, now=now)
        append(session, run, [_offer_event(run, offer, now=now) for offer in fresh])
        if report.state in FINISHED:
            _update_exclusions(session, run, offers, now=now)


def _update_exclusions(
    session: Session, run: Run, offers: Sequence[TriedOffer], *, now: datetime
) -> None:
    """Exclude the candidates that failed; skipped where an update no longer accepts the spec."""
    try:
        spec = spec_of(run)
    except SpecOutdated:
        return
    sky = spec.backend.skypilot
    assert sky is not None, run.id
    is_ordered = sky.choose == "ordered"
    update_exclusions(session, candidates_of(spec, sky), offers, is_ordered=is_ordered, now=now)


def warn_termination_overdue(
    context: WorkerContext, cluster_id: str, epoch: int, why: str, *, now: datetime
) -> None:
    """Warn a run that its cluster does not terminate and may cost money. Raises LeaseLost."""
    with context.database.transaction() as session:
        run = store.lock_run(session, session.get_one(Cluster, cluster_id).run_id)
        cluster = leases.hold(session, cluster_id, epoch)
        cluster.end_warned_at = now
        minutes = TERMINATION_OVERDUE.total_seconds() / 60
        message = (
            f"The cluster {cluster.name} has been terminating for {minutes:.0f} minutes, is not"
            f" known to be terminated, and may cost money: {why or 'the cloud gives no reason'}."
        )
        data = {"code": CLUSTER_NOT_ENDED, "message": message}
        append(session, run, [Draft(type="run.warning", at=now, data=data)])


def _reset_deadline(run: Run, cluster: Cluster, *, now: datetime) -> None:
    """Restart the provisioning deadline at each sign of progress; a pending cluster has none."""
    if run.status != RunStatus.PROVISIONING.value:
        return
    is_under_way = cluster.state in (ClusterState.PROVISIONING.value, ClusterState.RUNNING.value)
    limit = timedelta(seconds=CLUSTER_PROVISIONING_S)
    run.deadline_at = now + limit if is_under_way else None


def _emit_changed(session: Session, run: Run, cluster: Cluster, *, now: datetime) -> None:
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
    """Warn a run with a USD budget that its cluster's price is unknown: nothing else would."""
    if cluster.state != ClusterState.RUNNING.value or cluster.hourly_usd is not None:
        return
    limits = allowances(session, run, now=now)
    owners = [limit.owner for limit in limits if limit.usd is not None]
    if not owners:
        return
    message = (
        f"The price of the cluster {cluster.name} is not known: until it is, the cluster does not"
        f" count in the USD of the {' and the '.join(owners)}'s budget, which hours alone bound."
    )
    data = {"code": NO_PRICE, "message": message}
    draft = Draft(type="run.warning", at=now, attempt=run.attempt or None, data=data)
    append(session, run, [draft])


def _offer_event(run: Run, offer: TriedOffer, *, now: datetime) -> Draft:
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
    return Draft(type="cluster.offer_tried", at=now, attempt=run.attempt or None, data=data)
