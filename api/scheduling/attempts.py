"""Attempts of a run: scheduled for a free slot, claimed by a runner, ended for a reason.

Every function needs the run locked in the caller's transaction (`store.lock_run`, `leases.hold`).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import store
from api.runs.deadlines import TAIL_GRACE_S
from api.runs.end_reasons import OVERDUE, REASONS
from api.runs.errors import SpecOutdated
from api.runs.journal import SERVICE, Draft, append
from api.runs.queue_class import QueueClass, queue_class_of
from api.runs.status import WAITING, AttemptState, RunStatus
from api.runs.stored_spec import spec_of
from api.runs.transitions import move
from api.scheduling import queue
from api.scheduling.capacity import slots
from api.scheduling.finalize import finalize_attempt
from api.scheduling.provisioning import GiveUp, can_provision
from api.tables import Attempt, Checkpoint, Cluster, Run, RunEvent
from api.tables.ids import new_id
from hillclimb.process import tracing
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import Action, EndReport
from hillclimb.protocol.rundir import checkpoint_name, run_key
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.model import checkpoint_source

TOKEN_PREFIX = "hca_"  # noqa: S105 (a prefix, not a secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The end of an attempt as its runner, node or the service reports it."""

    reason: ReasonCode
    message: str
    actor: str = SERVICE
    exit_code: int | None = None
    final_trainer_seq: int | None = None
    """Number of events that the trainer wrote; null when unknown."""


def schedule(session: Session, run: Run, *, now: datetime) -> Attempt | None:
    """Schedule the next attempt of a waiting run whose turn has come; null while it must wait.

    Fails a run that may not provision a cluster any more, and one whose stored spec this version
    rejects. The attempt resumes from the newest complete checkpoint, or from the spec's.
    """
    if RunStatus(run.status) not in WAITING:
        return None
    spec = _parse_or_fail(session, run, now=now)
    if spec is None:
        return None
    on_cluster = queue_class_of(run) is QueueClass.CLUSTER
    slots.lock(session, run.project_id)
    if on_cluster and _fail_if_provisioning_exhausted(session, run, now=now):
        return None
    if queue.queue_position(session, run, now=now).reason is not None:
        return None
    resume_from, from_step = _resume_point(session, run, spec)
    run.attempt += 1
    attempt = Attempt(
        id=new_id("att"),
        run_id=run.id,
        number=run.attempt,
        state=AttemptState.SCHEDULED.value,
        resume_from=resume_from,
        from_step=from_step,
        scheduled_at=now,
        last_trainer_seq=0,
    )
    session.add(attempt)
    session.flush()
    data = {"attempt": run.attempt, "resume_from": resume_from, "from_step": from_step}
    data |= _traced_wait(session, run, now=now)
    append(session, run, [Draft(type="attempt.scheduled", at=now, attempt=run.attempt, data=data)])
    if on_cluster and spec.backend.skypilot is not None:
        clusters.create(session, run, attempt, spec.backend.skypilot, now=now)
    move(session, run, RunStatus.PROVISIONING, now=now)
    return attempt


def _traced_wait(session: Session, run: Run, *, now: datetime) -> dict[str, str]:
    """Record the wait in the queue as a span; return what the attempt's event says of it."""
    if not tracing.is_tracing():
        return {}
    traceparent = tracing.record(
        f"schedule attempt {run.attempt}",
        parent=_traceparent(session, run, "run.created"),
        begin=run.status_since.timestamp(),
        end=now.timestamp(),
        attributes={"hillclimb.run": run.id, "hillclimb.attempt": run.attempt},
    )
    return {} if traceparent is None else {"traceparent": traceparent}


def trace_claim(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> str | None:
    """Record the wait for a runner or for machines as a span; return its traceparent."""
    if not tracing.is_tracing():
        return None
    return tracing.record(
        f"claim attempt {attempt.number}",
        parent=_traceparent(session, run, "attempt.scheduled", attempt=attempt.number),
        begin=attempt.scheduled_at.timestamp(),
        end=max(now, attempt.scheduled_at).timestamp(),
        attributes={"hillclimb.run": run.id, "hillclimb.attempt": attempt.number},
    )


def scheduled_traceparent(session: Session, run: Run, attempt: Attempt) -> str | None:
    """Return the trace context of the wait in the queue; None while the service does not trace."""
    if not tracing.is_tracing():
        return None
    return _traceparent(session, run, "attempt.scheduled", attempt=attempt.number)


def _traceparent(
    session: Session, run: Run, event_type: str, *, attempt: int | None = None
) -> str | None:
    """Return the trace context that the newest event of this type has."""
    query = select(RunEvent.data["traceparent"].as_string()).where(
        RunEvent.run_id == run.id, RunEvent.type == event_type
    )
    if attempt is not None:
        query = query.where(RunEvent.attempt == attempt)
    return session.scalar(query.order_by(RunEvent.seq.desc()).limit(1))


def _parse_or_fail(session: Session, run: Run, *, now: datetime) -> RunSpec | None:
    """Return the run's stored spec; null after failing a run whose spec this version rejects."""
    try:
        return spec_of(run)
    except SpecOutdated as error:
        reason = (ReasonCode.SPEC_REJECTED, str(error))
        move(session, run, RunStatus.FAILED, now=now, reason=reason)
        return None


def _fail_if_provisioning_exhausted(session: Session, run: Run, *, now: datetime) -> bool:
    answer = can_provision(session, run, now=now)
    if not isinstance(answer, GiveUp):
        return False
    move(session, run, RunStatus.FAILED, now=now, reason=(answer.reason, answer.message))
    return True


def claim(
    session: Session, run: Run, attempt: Attempt, *, runner: tuple[str, str], now: datetime
) -> str:
    """Assign the scheduled attempt to a runner (id, name) and return its new ingest token.

    The token is stored only as a hash: it cannot be returned twice.
    """
    attempt.runner_id, name = runner
    actor = f"runner:{name}"
    return _claim(session, run, attempt, {"runner": name}, actor=actor, now=now)


def claim_for_cluster(
    session: Session, run: Run, attempt: Attempt, *, name: str, now: datetime
) -> str:
    """Assign the scheduled attempt to the cluster of that name and return its new ingest token."""
    actor = f"cluster:{name}"
    return _claim(session, run, attempt, {"cluster": name}, actor=actor, now=now)


def renew_token(attempt: Attempt) -> str:
    """Return a new ingest token for a claimed attempt; the previous one is invalid."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    attempt.token_hash = hash_token(token)
    return token


def _claim(
    session: Session,
    run: Run,
    attempt: Attempt,
    holder: dict[str, object],
    *,
    actor: str,
    now: datetime,
) -> str:
    attempt.state = AttemptState.CLAIMED.value
    attempt.claimed_at = attempt.last_held_at = now
    token = renew_token(attempt)
    data = {"attempt": attempt.number} | holder
    draft = Draft(type="attempt.claimed", at=now, actor=actor, attempt=attempt.number, data=data)
    append(session, run, [draft])
    move(session, run, RunStatus.STARTING, now=now, actor=actor)
    return token


def request_stop(attempt: Attempt, *, now: datetime, kill: bool = False) -> None:
    """Request, by heartbeat reply, that the trainer is stopped (checkpoint first) or killed."""
    if attempt.stop_requested_at is None:
        attempt.stop_requested_at = now
    if kill and attempt.kill_requested_at is None:
        attempt.kill_requested_at = now


def end_attempt(
    session: Session, run: Run, attempt: Attempt, end: AttemptEnd, *, now: datetime
) -> None:
    """End the attempt, then finalize its run as soon as its events are complete.

    Idempotent. `finalize_attempt` changes the run's status.
    """
    if attempt.state == AttemptState.ENDED.value:
        return
    attempt.state = AttemptState.ENDED.value
    attempt.ended_at = now
    attempt.end_code = end.reason.value
    attempt.end_message = end.message
    attempt.exit_code = end.exit_code
    attempt.final_trainer_seq = end.final_trainer_seq
    data = {
        "attempt": attempt.number,
        "reason": end.reason.value,
        "message": end.message,
        "exit_code": end.exit_code,
    }
    draft = Draft(type="attempt.ended", at=now, actor=end.actor, attempt=attempt.number, data=data)
    append(session, run, [draft])
    _wake_cluster(session, attempt, now=now)
    if attempt.number != run.attempt:
        return
    run.deadline_at = now + timedelta(seconds=TAIL_GRACE_S)
    run.due_at = now
    finalize_attempt(session, run, attempt, now=now)


def _wake_cluster(session: Session, attempt: Attempt, *, now: datetime) -> None:
    """Make the attempt's cluster due: it is terminated at once."""
    cluster = update(Cluster).where(Cluster.attempt_id == attempt.id, Cluster.due_at.is_not(None))
    session.execute(cluster.values(due_at=now))


def requested_action(attempt: Attempt) -> Action | None:
    """Return the requested action on the attempt's trainer; null: none."""
    if attempt.kill_requested_at is not None:
        return "kill"
    return "stop" if attempt.stop_requested_at is not None else None


def report_end(
    session: Session, run: Run, attempt: Attempt, body: EndReport, *, actor: str, now: datetime
) -> None:
    """Record the report of a runner or node that the trainer exited.

    Idempotent. A trainer that was killed because its run's status exceeded its deadline ended for
    that reason.
    """
    is_overdue = attempt.kill_requested_at is not None and attempt.trainer_code is None
    reason = OVERDUE.get(RunStatus(run.status), body.reason) if is_overdue else body.reason
    end = AttemptEnd(
        reason=reason,
        message=REASONS[reason].wording if is_overdue else body.message.replace("\0", "\ufffd"),
        actor=actor,
        exit_code=body.exit_code,
        final_trainer_seq=body.last_trainer_seq,
    )
    end_attempt(session, run, attempt, end, now=now)


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token, as stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def manifests(session: Session, run: Run, spec: RunSpec) -> dict[str, str]:
    """Return the digests of the manifests that the run's attempt may open, by blob key.

    These are the run's own checkpoints, and those that its spec resumes or starts from. Whoever can
    write to the store can replace files and manifest there, but not what the database says of them.
    """
    own = select(Checkpoint).where(Checkpoint.run_id == run.id, Checkpoint.deleted_at.is_(None))
    known = list(session.scalars(own))
    for source in (spec.lineage.resumed_from, checkpoint_source(spec.model.source)):
        if source is not None and source.step is not None and source.attempt is not None:
            named = store.find_checkpoint(
                session, run.project_id, source.run_id, step=source.step, attempt=source.attempt
            )
            known += [] if named is None else [named]
    return {run_key(each.run_id, each.path): each.manifest_sha256 for each in known}


def _resume_point(session: Session, run: Run, spec: RunSpec) -> tuple[str | None, int]:
    """Return (blob key, step) of the checkpoint to resume from: the run's own, else its spec's."""
    own = store.newest_checkpoint(session, run.id)
    if own is not None:
        return run_key(run.id, own.path), own.step
    source = spec.lineage.resumed_from
    if source is None:
        return None, 0
    checkpoint = store.find_checkpoint(
        session, run.project_id, source.run_id, step=source.step, attempt=source.attempt
    )
    # A checkpoint deleted since is still named: the trainer reports it as unreadable.
    path = checkpoint.path if checkpoint else checkpoint_name(source.step, source.attempt)
    return run_key(source.run_id, path), source.step
