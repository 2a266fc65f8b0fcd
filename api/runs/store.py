"""Every query of the runs domain; each takes the scope it may see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Integer, exists, func, select, tuple_
from sqlalchemy.orm import Session

from api.runs.errors import AttemptNotFound, RunNotFound
from api.runs.lanes import Lane, in_lane
from api.runs.light import kind, light
from api.runs.status import LOOK_AGAIN_S, AttemptState, RunStatus
from api.tables import Attempt, Checkpoint, Run, RunEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilters:
    """Which runs a list shows; null does not filter."""

    status: tuple[str, ...] = ()
    name: str | None = None
    """Part of the name, in any case."""
    created_after: datetime | None = None
    created_before: datetime | None = None


Position = tuple[datetime, str]
"""Where a page ends: `created_at` and id of its last run."""


def get_run(session: Session, project_id: str, run_id: str) -> Run:
    """Return the run; raises RunNotFound also for runs of other projects."""
    found = session.scalar(select(Run).where(Run.id == run_id, Run.project_id == project_id))
    if found is None:
        raise RunNotFound(run_id)
    return found


def lock_run(session: Session, run_id: str, *, project_id: str | None = None) -> Run:
    """Return the run as it is now, locked until the transaction ends.

    `project_id` is null only for the service's own work. Raises RunNotFound.
    """
    query = select(Run).where(Run.id == run_id).with_for_update(key_share=True)
    if project_id is not None:
        query = query.where(Run.project_id == project_id)
    found = session.scalar(query.execution_options(populate_existing=True))
    if found is None:
        raise RunNotFound(run_id)
    return found


def list_runs(
    session: Session, project_id: str, filters: RunFilters, *, after: Position | None, limit: int
) -> Sequence[Run]:
    """Return up to `limit` runs, newest first, that come after the position."""
    query = select(Run).where(Run.project_id == project_id)
    if filters.status:
        query = query.where(Run.status.in_(filters.status))
    if filters.name is not None:
        query = query.where(Run.name.icontains(filters.name, autoescape=True))
    if filters.created_after is not None:
        query = query.where(Run.created_at > filters.created_after)
    if filters.created_before is not None:
        query = query.where(Run.created_at < filters.created_before)
    if after is not None:
        query = query.where(tuple_(Run.created_at, Run.id) < after)
    query = query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)
    return session.scalars(query).all()


def newest_attempt(session: Session, run: Run) -> Attempt | None:
    """Return the attempt that owns the run, or null before the first."""
    return session.scalar(
        select(Attempt)
        .where(Attempt.run_id == run.id, Attempt.number == run.attempt)
        .execution_options(populate_existing=True)
    )


def list_attempts(session: Session, run_id: str) -> Sequence[Attempt]:
    """Return every attempt of the run, oldest first."""
    query = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)
    return session.scalars(query).all()


def get_attempt(session: Session, attempt_id: str) -> Attempt:
    """Return the attempt; raises AttemptNotFound."""
    found = session.get(Attempt, attempt_id, populate_existing=True)
    if found is None:
        raise AttemptNotFound(f"There is no attempt {attempt_id!r}.")
    return found


def held_attempts(session: Session, runner_id: str) -> Sequence[Attempt]:
    """Return the attempts that a runner has and has not reported as ended."""
    states = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
    query = select(Attempt).where(Attempt.runner_id == runner_id, Attempt.state.in_(states))
    return session.scalars(query).all()


def num_held(session: Session, runner_id: str) -> tuple[int, int]:
    """Return how many attempts a runner has, and how many of them are light and take no slot."""
    states = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
    counts = select(func.count(), func.count().filter(light())).select_from(Attempt)
    query = counts.join(Run, Run.id == Attempt.run_id)
    found = session.execute(
        query.where(Attempt.runner_id == runner_id, Attempt.state.in_(states))
    ).one()
    return found[0], found[1]


def newest_checkpoint(session: Session, run_id: str) -> Checkpoint | None:
    """Return the complete checkpoint to go on from.

    The highest step of the newest attempt that saved one: a later attempt's step is the truth
    even when an earlier attempt once got further.
    """
    query = select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.deleted_at.is_(None))
    query = query.order_by(Checkpoint.attempt.desc(), Checkpoint.step.desc()).limit(1)
    return session.scalar(query)


def saved_checkpoint(session: Session, run_id: str, attempt: int) -> bool:
    """Say whether the attempt ever completed a checkpoint, kept or not."""
    mine = exists().where(Checkpoint.run_id == run_id, Checkpoint.attempt == attempt)
    return bool(session.scalar(select(mine)))


def validated_more(session: Session, run_id: str, attempt: int) -> bool:
    """Say whether the attempt stored rows of tasks that earlier ones had not validated.

    Each sign of life of a validation says how many tasks are left, and comes after their rows.
    """
    left = RunEvent.data["num_rollouts"].astext.cast(Integer)
    told = select(func.max(left) - func.min(left)).where(
        RunEvent.run_id == run_id,
        RunEvent.attempt == attempt,
        RunEvent.type == "phase.started",
        RunEvent.data["phase"].astext == "validate",
    )
    return bool(session.scalar(told))


def find_checkpoint(
    session: Session, project_id: str, run_id: str, *, step: int, attempt: int
) -> Checkpoint | None:
    """Return that checkpoint if it is complete, not deleted, and the project's."""
    return session.scalar(
        select(Checkpoint)
        .join(Run, Run.id == Checkpoint.run_id)
        .where(
            Run.project_id == project_id,
            Checkpoint.run_id == run_id,
            Checkpoint.step == step,
            Checkpoint.attempt == attempt,
            Checkpoint.deleted_at.is_(None),
        )
    )


def num_waiting(
    session: Session,
    project_id: str,
    kinds: Collection[str],
    *,
    before: Run | None,
) -> Counter[str]:
    """Return how many runs of these kinds wait for a runner, before one of them or in all, by kind.

    Runs that recover go before those that were never begun, then the older one. Runs on clusters
    of their own wait for no runner.
    """
    named = kind().label("run_kind")
    query = select(named, func.count()).select_from(Run).where(Run.project_id == project_id)
    query = query.where(~in_lane(Lane.CLUSTER), _goes_before(before), kind().in_(kinds))
    return Counter(dict(session.execute(query.group_by("run_kind")).all()))


def num_waiting_far(session: Session, project_id: str, *, before: Run | None, now: datetime) -> int:
    """Return how many runs wait for a cluster of their own, before one of them or in all."""
    query = select(func.count()).select_from(Run).where(Run.project_id == project_id)
    return session.scalar(query.where(waits_far(now=now), _goes_before(before))) or 0


def waits_far(*, now: datetime) -> ColumnElement[bool]:
    """A condition on `Run`: it waits for a cluster of its own, and would ask for one soon.

    A run that waits out a lack of capacity is not due before its pause is over, and in nobody's
    way: what it wants is not there, what others want may be.
    """
    waiting = Run.status.in_((RunStatus.RECOVERING.value, RunStatus.QUEUED.value))
    return in_lane(Lane.CLUSTER) & waiting & (Run.due_at <= now + timedelta(seconds=LOOK_AGAIN_S))


def _goes_before(before: Run | None) -> ColumnElement[bool]:
    recovering = Run.status == RunStatus.RECOVERING.value
    ahead: ColumnElement[bool] = recovering | (Run.status == RunStatus.QUEUED.value)
    if before is not None:
        older = tuple_(Run.created_at, Run.id) < (before.created_at, before.id)
        ahead = (Run.status == before.status) & older
        if before.status == RunStatus.QUEUED.value:
            ahead = ahead | recovering
    return ahead


def next_waiting(session: Session, project_id: str, *, limit: int) -> Sequence[str]:
    """Return ids of the runs whose turn is next, to ring for when a slot becomes free."""
    waiting = (RunStatus.RECOVERING.value, RunStatus.QUEUED.value)
    query = select(Run.id).where(Run.project_id == project_id, Run.status.in_(waiting))
    query = query.order_by(Run.status.desc(), Run.created_at, Run.id).limit(limit)
    return session.scalars(query).all()
