"""Removes what the operator's settings no longer want of runs that ended long ago.

Nothing is removed by default. Of a run without its rollouts every score and figure stays; of its
training metrics stays what a chart shows: per part of the steps the first point, the last, the
smallest and the largest (M4; Jugel et al. 2014, doi:10.14778/2732951.2732953).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import CursorResult, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from api.admission.deletion.dependents import ENDED, dependents_of, is_imitated
from api.admission.deletion.runs import lock_for_deletion, mark_deleted, refuse_live
from api.runs.errors import InvalidTransition, RunNotFound
from api.runs.journal import utc_now
from api.settings import Settings
from api.tables import Metric, Run
from api.tables.access import audit
from hillclimb.blobs.base import StoreError
from hillclimb.protocol.rundir import (
    TIMES,
    TRAJECTORIES,
    VALUES,
    VOCABULARY,
    attempt_name,
    run_key,
)
from worker.context import WorkerContext
from worker.runs.removal.deadline import Deadline

log = logging.getLogger(__name__)

RUNS_AT_ONCE = 20
PARTS = 250
"""Parts of the steps of a series, of each of which at most four points stay."""
MAX_POINTS = 4 * PARTS
SERVICE = "service"
SAMPLE = text(
    """
    WITH placed AS (
        SELECT ctid AS place, step, attempt, value, max(attempt) OVER (PARTITION BY step) AS newest,
            (step - min(step) OVER ())::bigint * :parts
                / (max(step) OVER () - min(step) OVER () + 1) AS part
        FROM metrics WHERE run_id = :run_id AND name = :name AND decoding = 'train'
    ), ranked AS (
        SELECT place,
            row_number() OVER (PARTITION BY part ORDER BY step) AS from_first,
            row_number() OVER (PARTITION BY part ORDER BY step DESC) AS from_last,
            row_number() OVER (PARTITION BY part ORDER BY value, step) AS from_smallest,
            row_number() OVER (PARTITION BY part ORDER BY value DESC, step) AS from_largest
        FROM placed WHERE attempt = newest
    )
    DELETE FROM metrics WHERE run_id = :run_id AND name = :name AND decoding = 'train'
        AND ctid NOT IN (
            SELECT place FROM ranked
            WHERE 1 IN (from_first, from_last, from_smallest, from_largest)
        )
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Days for which parts of a run are kept after its end; null: for ever."""

    trajectories_days: float | None = None
    token_values_days: float | None = None
    metrics_days: float | None = None
    runs_days: float | None = None

    @classmethod
    def of(cls, settings: Settings) -> RetentionRules:
        """Return the rules in the operator's settings."""
        return cls(
            trajectories_days=settings.keep_trajectories_days,
            token_values_days=settings.keep_token_values_days,
            metrics_days=settings.keep_metrics_days,
            runs_days=settings.keep_runs_days,
        )


def sweep(
    context: WorkerContext,
    rules: RetentionRules,
    *,
    now: datetime | None = None,
    deadline: Deadline | None = None,
) -> Mapping[str, int]:
    """Apply the rules to some runs; return how many runs each was applied to."""
    now, deadline = now or utc_now(), deadline or Deadline()
    steps: Mapping[str, tuple[float | None, InstrumentedAttribute[datetime | None], Remove]] = {
        "runs": (rules.runs_days, Run.deleting_at, _delete),
        "trajectories": (rules.trajectories_days, Run.trajectories_removed_at, _trajectories),
        "token_values": (rules.token_values_days, Run.token_values_removed_at, _token_values),
        "metrics": (rules.metrics_days, Run.metrics_sampled_at, _metrics),
    }
    numbers = dict.fromkeys(steps, 0)
    for what, (days, done_at, remove) in steps.items():
        for run_id in _due(context, days, done_at, now=now):
            if deadline.is_over:
                return numbers
            try:
                numbers[what] += remove(context, run_id, now, deadline)
            except RunNotFound:  # somebody deleted it meanwhile
                continue
            except StoreError as error:
                log.warning("retention of %s waits for the blob store: %s", what, error)
                break
    return numbers


Remove = Callable[[WorkerContext, str, datetime, Deadline], bool]
"""Removes a part of a run; False where something needs it, or the time was not enough."""


def _due(
    context: WorkerContext,
    days: float | None,
    done_at: InstrumentedAttribute[datetime | None],
    *,
    now: datetime,
) -> list[str]:
    """Return some runs that ended so long ago and still have the part.

    In no order: runs that something needs stay due, and must not stand before all others.
    """
    if days is None:
        return []
    limit = now - timedelta(days=days)
    # An import is here since `created_at`, however long ago the run ended where it ran.
    is_old = (Run.ended_at < limit) & (Run.created_at < limit)
    query = select(Run.id).where(is_old, Run.status.in_(ENDED), done_at.is_(None))
    with context.database.transaction() as session:
        return list(session.scalars(query.order_by(func.random()).limit(RUNS_AT_ONCE)))


def _delete(context: WorkerContext, run_id: str, now: datetime, _: Deadline) -> bool:
    with context.database.transaction() as session:
        run = lock_for_deletion(session, run_id)
        try:
            refuse_live(session, run)
        except InvalidTransition:
            return False
        if dependents_of(session, run):
            return False
        mark_deleted(session, run, by=SERVICE, reason="retention", now=now)
    return True


def _trajectories(context: WorkerContext, run_id: str, now: datetime, _: Deadline) -> bool:
    return _remove_files(
        context, run_id, (TRAJECTORIES, TIMES), Run.trajectories_removed_at, now=now
    )


def _token_values(context: WorkerContext, run_id: str, now: datetime, _: Deadline) -> bool:
    return _remove_files(
        context, run_id, (VALUES, VOCABULARY), Run.token_values_removed_at, now=now
    )


def _remove_files(
    context: WorkerContext,
    run_id: str,
    names: tuple[str, ...],
    done_at: InstrumentedAttribute[datetime | None],
    *,
    now: datetime,
) -> bool:
    """Delete those files of every attempt; requests are refused before the first one goes."""
    with context.database.transaction() as session:
        run = lock_for_deletion(session, run_id)
        if is_imitated(session, run):
            return False
        project_id, attempt = run.project_id, max(run.attempt, 1)
    folders = [
        run_key(run_id, attempt_name(number), name)
        for number in range(1, attempt + 1)
        for name in names
    ]
    num_bytes = sum(sum(context.store.sizes(folder).values()) for folder in folders)
    with context.database.transaction() as session:
        setattr(lock_for_deletion(session, run_id), done_at.key, now)
        _record(session, project_id, run_id, {"files": ", ".join(names), "num_bytes": num_bytes})
    for folder in folders:
        context.store.delete_prefix(folder)
    log.info("removed %s of run %s: %d bytes", ", ".join(names), run_id, num_bytes)
    return True


def _metrics(context: WorkerContext, run_id: str, now: datetime, deadline: Deadline) -> bool:
    """Thin the training metrics of a run, a name in each transaction.

    Those that are thinned when the time is over stay so, and the next sweep goes on.
    """
    with context.database.transaction() as session:
        counts = select(Metric.name).where(Metric.run_id == run_id, Metric.decoding == "train")
        long = counts.group_by(Metric.name).having(func.count() > MAX_POINTS)
        names = session.scalars(long.order_by(Metric.name)).all()
    num_points = 0
    for name in names:
        with context.database.transaction() as session:
            values = {"run_id": run_id, "name": name, "parts": PARTS}
            result = session.execute(SAMPLE, values)
            assert isinstance(result, CursorResult)
            num_points += result.rowcount
        if deadline.is_over and name != names[-1]:
            return False
    with context.database.transaction() as session:
        run = lock_for_deletion(session, run_id)
        run.metrics_sampled_at = now
        if num_points:
            facts = {"num_series": len(names), "num_points": num_points}
            _record(session, run.project_id, run_id, facts)
    log.info("removed %d points of %d series of run %s", num_points, len(names), run_id)
    return True


def _record(session: Session, project_id: str, run_id: str, facts: Mapping[str, str | int]) -> None:
    change = {
        "table": "runs",
        "id": run_id,
        "action": "thinned",
        "before": dict(facts),
        "after": {},
    }
    audit.record_deletion(session, project_id=project_id, actor=SERVICE, change=change)
