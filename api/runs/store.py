"""Queries of the runs domain; each takes the scope that it may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Integer, Select, exists, func, select, tuple_
from sqlalchemy.orm import Session, defer

from api.runs.deadlines import RECHECK_S
from api.runs.errors import AttemptNotFound, RunDeleted, RunImported, RunNotFound
from api.runs.queue_class import QueueClass, has_queue_class, is_waiting
from api.runs.status import CLAIMED_STATES, RunStatus
from api.tables import Attempt, Checkpoint, DeletedRun, Run, RunEvent
from api.tables.training.results import REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilters:
    """Filters of a list of runs; null does not filter."""

    status: tuple[str, ...] = ()
    kind: str | None = None
    """`kind` of the spec."""
    name: str | None = None
    """A part of the name, case-insensitive."""
    tags: tuple[str, ...] = ()
    """A run has all of them."""
    match: str | None = None
    """The name, or the beginning of the id with or without `run_`."""
    created_after: datetime | None = None
    created_before: datetime | None = None


QUEUE_ORDER = (Run.status.desc(), Run.created_at, Run.id)
"""Recovering runs first (`recovering` sorts after `queued`), then the older run."""

Position = tuple[datetime, str]
"""The end of a page: `created_at` and id of its last run."""


def get_run(session: Session, project_id: str, run_id: str) -> Run:
    """Return the run; raises RunNotFound also for runs of other projects, and RunDeleted."""
    run = session.scalar(select(Run).where(Run.id == run_id, Run.project_id == project_id))
    if run is None:
        raise _absence(session, run_id, project_id)
    return run


def _absence(session: Session, run_id: str, project_id: str | None) -> RunNotFound:
    """Return the error for a run that is not there, which says so where it was deleted."""
    gone = session.get(DeletedRun, run_id)
    if gone is None or gone.project_id != project_id:
        return RunNotFound(run_id)
    return RunDeleted(
        run_id, name=gone.name, at=gone.created_at, by=gone.deleted_by, reason=gone.reason
    )


def lock_run(session: Session, run_id: str, *, project_id: str | None = None) -> Run:
    """Return the run, fresh and locked until the transaction ends.

    `project_id` is null only for the service's own work. Raises RunNotFound and RunDeleted.
    """
    query = select(Run).where(Run.id == run_id).with_for_update(key_share=True)
    if project_id is not None:
        query = query.where(Run.project_id == project_id)
    run = session.scalar(query.execution_options(populate_existing=True))
    if run is None:
        raise _absence(session, run_id, project_id)
    return run


def lock_by_token(session: Session, token_hash: str) -> tuple[Run, Attempt] | None:
    """Return the attempt of a token and its run, both fresh and locked; null for an unknown token.

    One statement, as every push needs it: it locks the run first, as everybody does, and reads both
    as they are then. Null also for a run that is being deleted: its attempts are next.
    """
    query = select(Run, Attempt).join(Attempt, Attempt.run_id == Run.id)
    query = query.where(Attempt.token_hash == token_hash)
    query = query.with_for_update(key_share=True, of=(Run, Attempt))
    row = session.execute(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else (row[0], row[1])


def keep_runs(session: Session, run_ids: Iterable[str]) -> None:
    """Keep runs from being deleted before the transaction ends, in which something will name them.

    Locks rows without changing them; whoever reads a run afterwards sees whether it was deleted.
    """
    if ids := sorted(set(run_ids)):
        query = select(Run.id).where(Run.id.in_(ids)).order_by(Run.id)
        session.execute(query.with_for_update(read=True, key_share=True))


def refuse_imported(run: Run, request: str) -> None:
    """Raise RunImported for a run that was imported; `request` ends the sentence "it cannot"."""
    if run.origin is not None:
        raise RunImported(
            f"Run {run.id} was imported from {run.origin['source']} ({run.origin['kind']}): this"
            f" service did not run it and has none of its checkpoints, so it cannot {request}."
            " Submit a spec of your own instead."
        )


def list_runs(
    session: Session, project_id: str, filters: RunFilters, *, after: Position | None, limit: int
) -> Sequence[Run]:
    """Return up to `limit` runs, newest first, that come after the position."""
    return session.scalars(_listed(project_id, filters, after, limit)).all()


def list_without_specs(
    session: Session, project_id: str, filters: RunFilters, *, after: Position | None, limit: int
) -> Sequence[tuple[Run, str]]:
    """Return the same with the kind of each; their specs stay in the database.

    To parse the specs of fifty runs takes a quarter of the CPU time of a list.
    """
    query = _listed(project_id, filters, after, limit).options(defer(Run.spec, raiseload=True))
    rows = session.execute(query.add_columns(Run.spec["kind"].astext))
    return [(run, kind) for run, kind in rows]


def _listed(
    project_id: str, filters: RunFilters, after: Position | None, limit: int
) -> Select[Run]:
    query = select(Run).where(Run.project_id == project_id, *_conditions(filters))
    if after is not None:
        query = query.where(tuple_(Run.created_at, Run.id) < after)
    return query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)


def _conditions(filters: RunFilters) -> Iterator[ColumnElement[bool]]:
    if filters.status:
        yield Run.status.in_(filters.status)
    if filters.kind is not None:
        yield Run.spec["kind"].astext == filters.kind
    if filters.name is not None:
        yield Run.name.icontains(filters.name, autoescape=True)
    if filters.tags:
        yield Run.tags.contains(list(filters.tags))
    if filters.match is not None:
        start = f"run_{filters.match.removeprefix('run_')}"
        yield (Run.name == filters.match) | Run.id.startswith(start, autoescape=True)
    if filters.created_after is not None:
        yield Run.created_at > filters.created_after
    if filters.created_before is not None:
        yield Run.created_at < filters.created_before


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
    attempt = session.get(Attempt, attempt_id, populate_existing=True)
    if attempt is None:
        raise AttemptNotFound(f"There is no attempt {attempt_id!r}.")
    return attempt


def attempts_of_runner(session: Session, runner_id: str) -> Sequence[Attempt]:
    """Return the attempts that a runner has claimed and not reported as ended."""
    query = select(Attempt).where(Attempt.runner_id == runner_id, Attempt.state.in_(CLAIMED_STATES))
    return session.scalars(query).all()


def newest_checkpoint(session: Session, run_id: str) -> Checkpoint | None:
    """Return the complete checkpoint to resume from.

    The highest step of the newest attempt that saved one: a later attempt's step is the truth
    even when an earlier attempt once got further. A refused one is returned only where there is no
    other: the trainer then ends with the reason, instead of starting over.
    """
    is_refused = Checkpoint.qualification.is_not_distinct_from(REFUSED)
    query = select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.deleted_at.is_(None))
    query = query.order_by(is_refused, Checkpoint.attempt.desc(), Checkpoint.step.desc()).limit(1)
    return session.scalar(query)


def checkpoint_at(session: Session, run_id: str, step: int) -> Checkpoint | None:
    """Return the newest complete checkpoint of a step; a refused one only where no other is."""
    is_refused = Checkpoint.qualification.is_not_distinct_from(REFUSED)
    query = select(Checkpoint).where(
        Checkpoint.run_id == run_id, Checkpoint.step == step, Checkpoint.deleted_at.is_(None)
    )
    return session.scalar(query.order_by(is_refused, Checkpoint.attempt.desc()).limit(1))


def saved_checkpoint(session: Session, run_id: str, attempt: int) -> bool:
    """Return True when the attempt completed a checkpoint, deleted or not."""
    mine = exists().where(Checkpoint.run_id == run_id, Checkpoint.attempt == attempt)
    return bool(session.scalar(select(mine)))


def validated_more(session: Session, run_id: str, attempt: int) -> bool:
    """Return True when the attempt stored rows of tasks that earlier ones had not validated.

    A validation emits `phase.started` with the number of remaining tasks, after their rows.
    """
    remaining = RunEvent.data["num_rollouts"].astext.cast(Integer)
    num_validated = select(func.max(remaining) - func.min(remaining)).where(
        RunEvent.run_id == run_id,
        RunEvent.attempt == attempt,
        RunEvent.type == "phase.started",
        RunEvent.data["phase"].astext == "validate",
    )
    return bool(session.scalar(num_validated))


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


def num_waiting_for_cluster(
    session: Session, project_id: str, *, before: Run | None, now: datetime
) -> int:
    """Return how many runs wait for a cluster of their own, before one of them or in all."""
    query = select(func.count()).select_from(Run).where(Run.project_id == project_id)
    return session.scalar(query.where(waits_for_cluster(now=now), _goes_before(before))) or 0


def waits_for_cluster(*, now: datetime) -> ColumnElement[bool]:
    """A condition on `Run`: it waits for a cluster of its own and is due soon.

    A run in its back-off after a lack of capacity does not count: it blocks nobody, because other
    runs may want machines that are available.
    """
    return (
        has_queue_class(QueueClass.CLUSTER)
        & is_waiting()
        & (Run.due_at <= now + timedelta(seconds=RECHECK_S))
    )


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
    """Return ids of the next waiting runs of each class, to enqueue when a slot becomes free."""
    waiting: list[str] = []
    for queue_class in QueueClass:
        query = select(Run.id).where(Run.project_id == project_id, has_queue_class(queue_class))
        query = query.where(is_waiting()).order_by(*QUEUE_ORDER).limit(limit)
        waiting += session.scalars(query)
    return waiting
