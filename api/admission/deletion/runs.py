"""Deletion of a run: refused, or requested; `worker.runs.removal` carries it out.

From the commit on no request sees the run. What other rows have of it goes in the same transaction
where it is small; events, results and blobs go in batches, which any process of the worker
continues where another stopped.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Executable, Text, cast, delete, exists, or_, select, update
from sqlalchemy.orm import Session

from api.admission.deletion.dependents import dependents_of
from api.clusters.store import ClusterState
from api.runs.errors import InvalidTransition, RunInUse, RunNotFound
from api.runs.status import TERMINAL, AttemptState, RunStatus
from api.runs.store import get_run
from api.tables import (
    ApiKey,
    Attempt,
    CampaignCell,
    Cluster,
    DeletedRun,
    IdempotencyKey,
    OutboxMessage,
    Run,
    SlackRequest,
    SlackThread,
)
from api.tables.access.identity import NotAllowed, Principal, Scope

RUN_DELETED = "Its run was deleted."
"""`problem` of a campaign's cell whose run was deleted: a retry runs it again."""


def delete_run(session: Session, run_id: str, caller: Principal, *, now: datetime) -> DeletedRun:
    """Request the deletion of a run.

    Raises:
        RunNotFound: there is no such run, or it was deleted.
        NotAllowed: the caller is neither an admin nor the one who submitted the run.
        InvalidTransition: the run, an attempt or a cluster of it has not ended.
        RunInUse: something that stays needs the run; the error names all such things.
    """
    get_run(session, caller.project_id, run_id)
    run = lock_for_deletion(session, run_id)
    if not may_delete(session, run, caller):
        raise NotAllowed(
            f"Run {run.id} was submitted by {run.created_by}: only they and an admin of the project"
            " may delete it. Where several keys have that name, only an admin may."
        )
    refuse_live(session, run)
    if problems := dependents_of(session, run):
        sentences = " ".join(problem.message for problem in problems)
        raise RunInUse(f"Run {run.id} cannot be deleted. {sentences}", problems)
    return mark_deleted(session, run, by=caller.actor, reason="request", now=now)


def may_delete(session: Session, run: Run, caller: Principal) -> bool:
    """Return True for an admin of the run's project, and for whoever submitted it.

    A run has the name of its submitter's key, and names of keys are not unique: one that a key of
    somebody else has, or had, says nothing.
    """
    if Scope.ADMIN.value in caller.scopes:
        return True
    if run.created_by != caller.actor:
        return False
    return caller.key_id is None or not _others_have_the_name(session, caller)


def _others_have_the_name(session: Session, caller: Principal) -> bool:
    same_name = exists().where(
        ApiKey.project_id == caller.project_id,
        ApiKey.name == caller.key_name,
        ApiKey.id != caller.key_id,
    )
    if caller.person_id is not None:
        same_name = same_name.where(ApiKey.person_id.is_distinct_from(caller.person_id))
    return bool(session.scalar(select(same_name)))


def lock_for_deletion(session: Session, run_id: str) -> Run:
    """Return the run, locked against everything that would name it meanwhile (`keep_runs`).

    Raises RunNotFound for a run that was deleted since it was read.
    """
    query = select(Run).where(Run.id == run_id).with_for_update()
    run = session.scalar(query.execution_options(populate_existing=True))
    if run is None:
        raise RunNotFound(run_id)
    return run


def refuse_live(session: Session, run: Run) -> None:
    """Raise InvalidTransition unless run, attempts and clusters have ended."""
    if RunStatus(run.status) not in TERMINAL:
        raise InvalidTransition(
            f"Run {run.id} is {run.status}: only a run that has ended can be deleted. Cancel it"
            " first."
        )
    attempts = select(Attempt.number).where(
        Attempt.run_id == run.id, Attempt.state != AttemptState.ENDED.value
    )
    clusters = select(Cluster.name).where(
        Cluster.run_id == run.id, Cluster.state != ClusterState.TERMINATED.value
    )
    for number in session.scalars(attempts):
        raise InvalidTransition(
            f"Attempt {number} of run {run.id} is still being ended: try again in a minute."
        )
    for name in session.scalars(clusters):
        raise InvalidTransition(
            f"Cluster {name} of run {run.id} is not terminated yet: delete the run afterwards."
        )


def mark_deleted(session: Session, run: Run, *, by: str, reason: str, now: datetime) -> DeletedRun:
    """Hide the locked run from everybody, and note what is kept of it."""
    run.deleting_at, run.due_at = now, None
    deleted = DeletedRun(
        id=run.id,
        project_id=run.project_id,
        name=run.name,
        submitted_at=run.created_at if run.origin is None else None,
        deleted_by=by,
        reason=reason,
        billed=_billed(session, run.id),
        num_rows=0,
        num_bytes=0,
        created_at=now,
    )
    session.add(deleted)
    unlink(session, run)
    session.flush()
    return deleted


def unlink(session: Session, run: Run) -> None:
    """Delete what senders and repeated requests would use of the run, and empty its cells."""
    cells = update(CampaignCell).where(CampaignCell.run_id == run.id)
    _execute(session, cells.values(run_id=None, problem=RUN_DELETED))
    for table in (OutboxMessage, SlackThread):
        _execute(session, delete(table).where(table.run_id == run.id))
    answers = IdempotencyKey.response["id"].as_string() == run.id
    paths = IdempotencyKey.path.startswith(f"/v1/runs/{run.id}/")
    pages = IdempotencyKey.path.startswith(f"/runs/{run.id}/")
    mine = IdempotencyKey.project_id == run.project_id
    _execute(session, delete(IdempotencyKey).where(mine, or_(answers, paths, pages)))
    of_slack = [SlackRequest.payload, SlackRequest.reply, SlackRequest.spec]
    names = or_(*(cast(column, Text).contains(run.id) for column in of_slack))
    _execute(session, delete(SlackRequest).where(SlackRequest.project_id == run.project_id, names))


def _execute(session: Session, statement: Executable) -> None:
    session.execute(statement, execution_options={"synchronize_session": False})


def _billed(session: Session, run_id: str) -> list[dict[str, object]]:
    query = select(Cluster.billed_from, Cluster.terminated_at, Cluster.hourly_usd).where(
        Cluster.run_id == run_id, Cluster.billed_from.is_not(None)
    )
    return [
        {
            "billed_from": began.isoformat() if began else None,
            "terminated_at": ended.isoformat() if ended else None,
            "hourly_usd": usd,
        }
        for began, ended, usd in session.execute(query)
    ]
