"""Between a row of `clusters` and the plain view that decisions are made on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters.store import ClusterState, speaks_by_notes
from api.runs.presence import is_api_there
from api.runs.status import AttemptState
from api.tables import Attempt, Cluster, Offer, Run
from worker.clusters.base import ClusterFacts, OfferTried, Outcome, SeenState
from worker.clusters.view import Cause, ClusterView

_Born: TypeAlias = tuple[str, datetime]
"""Id of a cluster, and when its row was made."""
_Carried: TypeAlias = tuple[Attempt, int, bool]
"""A cluster's attempt, the number of its run's newest one, and whether its nodes need the API."""


def read(session: Session, clusters: Sequence[Cluster]) -> list[ClusterView]:
    """Return the views of rows and of what belongs to them, in order; three queries for all."""
    carried = _carried(session, clusters)
    earlier = _not_gone(session, clusters)
    is_any_wanted = any(each.state == ClusterState.WANTED.value for each in clusters)
    is_alone = is_any_wanted and not is_api_there(session)
    return [
        _view(each, carried[each.attempt_id], earlier[each.run_id], is_alone=is_alone)
        for each in clusters
    ]


def _view(
    cluster: Cluster, carried: _Carried, not_gone: Sequence[_Born], *, is_alone: bool
) -> ClusterView:
    attempt, newest, needs_api = carried
    is_wanted = attempt.state != AttemptState.ENDED.value and attempt.number == newest
    own = (cluster.id, cluster.created_at)
    return ClusterView(
        name=cluster.name,
        job_name=cluster.attempt_id,
        state=ClusterState(cluster.state),
        is_wanted=is_wanted,
        has_predecessor=any(id_ != own[0] and born <= own[1] for id_, born in not_gone),
        is_shut_out=needs_api and is_alone,
        shut_out_at=cluster.shut_out_at,
        launch_asked_at=cluster.launch_asked_at,
        launch_tries=cluster.launch_tries,
        request_id=cluster.request_id,
        job_id=cluster.job_id,
        cluster=_facts(cluster),
        up_at=cluster.up_at,
        seen_state=SeenState(cluster.seen_state) if cluster.seen_state else None,
        seen_at=cluster.seen_at,
        num_unseen=cluster.num_unseen,
        unsound_since=cluster.unsound_since,
        node_heard_at=heard_at(attempt),
        jobs_asked_at=cluster.jobs_asked_at,
        num_jobless=cluster.num_jobless,
        wall_limit_at=cluster.wall_limit_at,
        down_asked_at=cluster.down_asked_at,
        down_request_id=cluster.down_request_id,
        ending_at=cluster.ending_at,
        is_end_warned=cluster.end_warned_at is not None,
        waits_for=cluster.waits_for,
        cause=Cause(cluster.cause) if cluster.cause else None,
        message=cluster.message,
    )


def bare(cluster: Cluster, attempt: Attempt) -> ClusterView:
    """Return what a sweep needs of a row: who it is and what was seen of it before."""
    return ClusterView(
        name=cluster.name,
        job_name=cluster.attempt_id,
        state=ClusterState(cluster.state),
        cluster=_facts(cluster),
        seen_state=SeenState(cluster.seen_state) if cluster.seen_state else None,
        seen_at=cluster.seen_at,
        num_unseen=cluster.num_unseen,
        unsound_since=cluster.unsound_since,
        node_heard_at=heard_at(attempt),
    )


def write(cluster: Cluster, view: ClusterView, *, now: datetime) -> None:
    """Bring a held row up to a view. What sweeps write is left alone."""
    cluster.state = view.state.value
    cluster.cause = view.cause.value if view.cause else None
    cluster.message = view.message
    cluster.request_id = view.request_id
    cluster.launch_asked_at = view.launch_asked_at
    cluster.launch_tries = view.launch_tries
    cluster.job_id = view.job_id
    cluster.jobs_asked_at = view.jobs_asked_at
    cluster.num_jobless = view.num_jobless
    cluster.down_asked_at = view.down_asked_at
    cluster.down_request_id = view.down_request_id
    cluster.ending_at = view.ending_at
    cluster.waits_for = view.waits_for
    if view.cluster is not None:
        cluster.infra, cluster.region = view.cluster.infra, view.cluster.region
        cluster.sku = view.cluster.sku
        _learn_price(cluster, view.cluster.hourly_usd)
    if view.up_at is not None and cluster.up_at is None:
        cluster.up_at = view.up_at
        _begin_to_pay(cluster, view.up_at)
    if view.state is ClusterState.GONE and cluster.gone_at is None:
        cluster.gone_at = now


def write_sighting(cluster: Cluster, view: ClusterView) -> None:
    """Bring a row up to what a sweep has seen, and nothing else."""
    if view.cluster is not None:
        _learn_price(cluster, view.cluster.hourly_usd)
    cluster.seen_state = view.seen_state.value if view.seen_state else None
    cluster.seen_at = view.seen_at
    cluster.num_unseen = view.num_unseen
    cluster.unsound_since = view.unsound_since


def write_offers(
    session: Session, cluster: Cluster, tried: tuple[OfferTried, ...], *, now: datetime
) -> list[OfferTried]:
    """Add what a launch has tried to the ledger; returns what is new, or has come out otherwise.

    Machines that were had are paid from now on, whatever becomes of them.
    """
    query = select(Offer).where(Offer.cluster_id == cluster.id)
    query = query.where(Offer.launch == cluster.launch_tries)
    known = {row.number: row for row in session.scalars(query)}
    fresh = []
    for number, offer in enumerate(tried, start=1):
        row = known.get(number)
        if row is not None and row.outcome == offer.outcome.value:
            continue
        fresh.append(offer)
        if offer.outcome is Outcome.UP:
            _begin_to_pay(cluster, now)
            _learn_price(cluster, offer.hourly_usd)
        if row is None:
            row = Offer(cluster_id=cluster.id, launch=cluster.launch_tries, number=number, at=now)
            session.add(row)
        _fill(row, offer)
    return fresh


def _fill(row: Offer, offer: OfferTried) -> None:
    row.seconds = offer.seconds
    row.infra, row.region = offer.infra, offer.region
    row.sku, row.hourly_usd = offer.sku, offer.hourly_usd
    row.outcome = offer.outcome.value
    row.error_class, row.message = offer.error_class, offer.message


def _begin_to_pay(cluster: Cluster, at: datetime) -> None:
    """From the first machine on; a cluster's longest life begins with it."""
    if cluster.paid_from is None:
        cluster.paid_from = at
        cluster.wall_limit_at = at + timedelta(hours=cluster.max_hours)


def _learn_price(cluster: Cluster, hourly_usd: float | None) -> None:
    """A price that is known is not forgotten because somebody could not name it."""
    if hourly_usd is not None:
        cluster.hourly_usd = hourly_usd


def _facts(cluster: Cluster) -> ClusterFacts | None:
    if cluster.infra is None:
        return None
    return ClusterFacts(
        infra=cluster.infra,
        region=cluster.region,
        sku=cluster.sku,
        num_nodes=cluster.num_nodes,
        hourly_usd=cluster.hourly_usd,
    )


def _carried(session: Session, clusters: Sequence[Cluster]) -> dict[str, _Carried]:
    """Return what each cluster carries, by its attempt's id."""
    query = select(Attempt, Run.attempt, ~speaks_by_notes()).join(Run, Run.id == Attempt.run_id)
    query = query.where(Attempt.id.in_([each.attempt_id for each in clusters]))
    found = session.execute(query.execution_options(populate_existing=True))
    return {attempt.id: (attempt, newest, needs_api) for attempt, newest, needs_api in found}


def _not_gone(session: Session, clusters: Sequence[Cluster]) -> dict[str, list[_Born]]:
    """Return the clusters that are not gone, by run."""
    query = select(Cluster.run_id, Cluster.id, Cluster.created_at)
    query = query.where(Cluster.run_id.in_({each.run_id for each in clusters}))
    found: dict[str, list[_Born]] = defaultdict(list)
    for run_id, id_, born in session.execute(query.where(Cluster.state != ClusterState.GONE.value)):
        found[run_id].append((id_, born))
    return found


def heard_at(attempt: Attempt) -> datetime | None:
    """Return when the attempt's first node was last heard, in whatever way."""
    return max(filter(None, (attempt.last_held_at, attempt.last_event_at)), default=None)
