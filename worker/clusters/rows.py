"""Maps rows of `clusters` to the plain views that decisions are made on, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters.store import ClusterState, uses_blob_channel
from api.runs.api_liveness import is_api_alive
from api.runs.status import AttemptState
from api.tables import Attempt, Cluster, LaunchTry, Run
from worker.clusters.view import Cause, ClusterView
from worker.skypilot.port import CloudState, ClusterFacts, OfferOutcome, TriedOffer

_Created: TypeAlias = tuple[str, datetime]
"""Id of a cluster, and its row's time of creation."""
_AttemptInfo: TypeAlias = tuple[Attempt, int, bool]
"""A cluster's attempt, the number of its run's newest one, and whether its nodes need the API."""


def read(session: Session, clusters: Sequence[Cluster]) -> list[ClusterView]:
    """Return the views of rows, joined with their attempts and runs, in order; three queries."""
    if not clusters:
        return []
    attempts = _attempts(session, clusters)
    live = _not_terminated(session, clusters)
    is_any_pending = any(each.state == ClusterState.PENDING.value for each in clusters)
    is_api_down = is_any_pending and not is_api_alive(session)
    return [
        _view(each, attempts[each.attempt_id], live[each.run_id], is_api_down=is_api_down)
        for each in clusters
    ]


def _view(
    cluster: Cluster, info: _AttemptInfo, live: Sequence[_Created], *, is_api_down: bool
) -> ClusterView:
    attempt, newest, needs_api = info
    is_needed = attempt.state != AttemptState.ENDED.value and attempt.number == newest
    own = (cluster.id, cluster.created_at)
    return ClusterView(
        name=cluster.name,
        job_name=cluster.attempt_id,
        state=ClusterState(cluster.state),
        is_needed=is_needed,
        has_predecessor=any(id_ != own[0] and at <= own[1] for id_, at in live),
        is_api_unreachable=needs_api and is_api_down,
        api_unreachable_at=cluster.api_unreachable_at,
        launch_requested_at=cluster.launch_requested_at,
        launch_tries=cluster.launch_tries,
        request_id=cluster.request_id,
        job_id=cluster.job_id,
        cluster=_facts(cluster),
        running_at=cluster.running_at,
        observed_state=CloudState(cluster.observed_state) if cluster.observed_state else None,
        seen_at=cluster.seen_at,
        missed_polls=cluster.missed_polls,
        unhealthy_since=cluster.unhealthy_since,
        node_heartbeat_at=last_heartbeat_at(attempt),
        jobs_requested_at=cluster.jobs_requested_at,
        polls_without_job=cluster.polls_without_job,
        wall_limit_at=cluster.wall_limit_at,
        termination_requested_at=cluster.termination_requested_at,
        termination_request_id=cluster.termination_request_id,
        terminating_at=cluster.terminating_at,
        is_end_warned=cluster.end_warned_at is not None,
        status_reason=cluster.status_reason,
        cause=Cause(cluster.cause) if cluster.cause else None,
        message=cluster.message,
    )


def bare(cluster: Cluster, attempt: Attempt) -> ClusterView:
    """Return the part of a view that a sweep needs: the names and the last observations."""
    return ClusterView(
        name=cluster.name,
        job_name=cluster.attempt_id,
        state=ClusterState(cluster.state),
        cluster=_facts(cluster),
        observed_state=CloudState(cluster.observed_state) if cluster.observed_state else None,
        seen_at=cluster.seen_at,
        missed_polls=cluster.missed_polls,
        unhealthy_since=cluster.unhealthy_since,
        node_heartbeat_at=last_heartbeat_at(attempt),
    )


def write(cluster: Cluster, view: ClusterView, *, now: datetime) -> None:
    """Write a view into a locked row, except the columns that sweeps own."""
    cluster.state = view.state.value
    cluster.cause = view.cause.value if view.cause else None
    cluster.message = view.message
    cluster.request_id = view.request_id
    cluster.launch_requested_at = view.launch_requested_at
    cluster.launch_tries = view.launch_tries
    cluster.job_id = view.job_id
    cluster.jobs_requested_at = view.jobs_requested_at
    cluster.polls_without_job = view.polls_without_job
    cluster.termination_requested_at = view.termination_requested_at
    cluster.termination_request_id = view.termination_request_id
    cluster.terminating_at = view.terminating_at
    cluster.status_reason = view.status_reason
    if view.cluster is not None:
        cluster.infra, cluster.region = view.cluster.infra, view.cluster.region
        cluster.sku = view.cluster.sku
        _set_price(cluster, view.cluster.hourly_usd)
    if view.running_at is not None and cluster.running_at is None:
        cluster.running_at = view.running_at
        _start_billing(cluster, view.running_at)
    if view.state is ClusterState.TERMINATED and cluster.terminated_at is None:
        cluster.terminated_at = now


def write_sweep(cluster: Cluster, view: ClusterView) -> None:
    """Write the columns that sweeps own, and no others."""
    if view.cluster is not None:
        _set_price(cluster, view.cluster.hourly_usd)
    cluster.observed_state = view.observed_state.value if view.observed_state else None
    cluster.seen_at = view.seen_at
    cluster.missed_polls = view.missed_polls
    cluster.unhealthy_since = view.unhealthy_since


def write_offers(
    session: Session, cluster: Cluster, offers: tuple[TriedOffer, ...], *, now: datetime
) -> list[TriedOffer]:
    """Add a launch's offers to the ledger; returns those that are new or whose outcome changed.

    Machines that came up are billed from now on, even if the launch gives them up.
    """
    query = select(LaunchTry).where(LaunchTry.cluster_id == cluster.id)
    query = query.where(LaunchTry.launch == cluster.launch_tries)
    rows = {row.number: row for row in session.scalars(query)}
    fresh = []
    for number, offer in enumerate(offers, start=1):
        row = rows.get(number)
        if row is not None and row.outcome == offer.outcome.value:
            continue
        fresh.append(offer)
        if offer.outcome is OfferOutcome.UP:
            _start_billing(cluster, now)
            _set_price(cluster, offer.hourly_usd)
        if row is None:
            row = LaunchTry(
                cluster_id=cluster.id, launch=cluster.launch_tries, number=number, at=now
            )
            session.add(row)
        _fill(row, offer)
    return fresh


def _fill(row: LaunchTry, offer: TriedOffer) -> None:
    row.seconds = offer.seconds
    row.infra, row.region = offer.infra, offer.region
    row.sku, row.hourly_usd = offer.sku, offer.hourly_usd
    row.outcome = offer.outcome.value
    row.error_class, row.message = offer.error_class, offer.message


def _start_billing(cluster: Cluster, at: datetime) -> None:
    """Bill from the first machine on; the limit of `max_hours` counts from it too."""
    if cluster.billed_from is None:
        cluster.billed_from = at
        cluster.wall_limit_at = at + timedelta(hours=cluster.max_hours)


def _set_price(cluster: Cluster, hourly_usd: float | None) -> None:
    """Set the price; a known one is kept where the newest answer has none."""
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


def _attempts(session: Session, clusters: Sequence[Cluster]) -> dict[str, _AttemptInfo]:
    """Return each cluster's attempt with its run's newest number, by the attempt's id."""
    query = select(Attempt, Run.attempt, ~uses_blob_channel()).join(Run, Run.id == Attempt.run_id)
    query = query.where(Attempt.id.in_([each.attempt_id for each in clusters]))
    matches = session.execute(query.execution_options(populate_existing=True))
    return {attempt.id: (attempt, newest, needs_api) for attempt, newest, needs_api in matches}


def _not_terminated(session: Session, clusters: Sequence[Cluster]) -> dict[str, list[_Created]]:
    """Return the clusters that are not terminated, by run."""
    query = select(Cluster.run_id, Cluster.id, Cluster.created_at)
    query = query.where(Cluster.run_id.in_({each.run_id for each in clusters}))
    live: dict[str, list[_Created]] = defaultdict(list)
    for run_id, id_, created_at in session.execute(
        query.where(Cluster.state != ClusterState.TERMINATED.value)
    ):
        live[run_id].append((id_, created_at))
    return live


def last_heartbeat_at(attempt: Attempt) -> datetime | None:
    """Return the attempt's last sign of life: a heartbeat or an event, over either transport."""
    return max(filter(None, (attempt.last_held_at, attempt.last_event_at)), default=None)
