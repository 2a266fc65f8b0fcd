"""Counts of stored state for operators: runs, queue, ingest, outbox and clusters of all projects.

The only reads that no project scopes: they return numbers without ids and names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.runs.status import WAITING, AttemptState, RunStatus
from api.tables import Attempt, Cluster, OutboxMessage, Run

OUTBOX_STATES = ("pending", "delivered", "skipped", "dead")
CLUSTER_STATES = ("pending", "provisioning", "running", "terminating", "terminated")


class StoredState(Collector):
    """Reads the counts at each scrape, in the caller's session."""

    def __init__(self, session: Session, *, now: datetime) -> None:
        self._session, self._now = session, now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge."""
        runs = self._count(Run.status)
        statuses = {each.value: runs.get(each.value, 0) for each in RunStatus}
        yield _by("status", "hillclimb_runs", "Runs by status.", statuses)
        waiting = [status.value for status in WAITING]
        yield GaugeMetricFamily(
            "hillclimb_queue_depth",
            "Runs that wait for a slot or a cluster.",
            sum(statuses[status] for status in waiting),
        )
        oldest = select(func.min(Run.status_since)).where(Run.status.in_(waiting))
        yield GaugeMetricFamily(
            "hillclimb_queue_oldest_seconds",
            "Time that the run that has waited longest waits.",
            self._age(self._session.scalar(oldest)),
        )
        running = select(func.min(func.coalesce(Attempt.last_event_at, Attempt.started_at)))
        yield GaugeMetricFamily(
            "hillclimb_ingest_lag_seconds",
            "Time since the newest event of the running attempt that has been silent longest.",
            self._age(
                self._session.scalar(running.where(Attempt.state == AttemptState.RUNNING.value))
            ),
        )
        outbox = self._count(OutboxMessage.state)
        states = {each: outbox.get(each, 0) for each in OUTBOX_STATES}
        yield _by("state", "hillclimb_outbox_messages", "Messages of the outbox by state.", states)
        clusters = self._count(Cluster.state)
        states = {each: clusters.get(each, 0) for each in CLUSTER_STATES}
        yield _by("state", "hillclimb_clusters", "Clusters by state.", states)

    def _count(self, column: object) -> dict[str, int]:
        counted = select(column, func.count()).group_by(column)  # type: ignore[call-overload]
        return {str(state): int(number) for state, number in self._session.execute(counted)}

    def _age(self, since: datetime | None) -> float:
        return max(0.0, (self._now - since).total_seconds()) if since is not None else 0.0


def _by(label: str, name: str, meaning: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family
