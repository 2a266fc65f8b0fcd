"""Runners: registration under a lease, heartbeats with commands, claims and end reports.

Rows are locked in one order, everywhere: runners, runs (by id), attempts. A transaction that has
locked a run never waits for a runner, and one that has written an attempt never waits for a run.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.runs import store
from api.runs.deadlines import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEATS_PER_S,
    MAX_HEARTBEAT_INTERVAL_S,
    RUNNER_LEASE_S,
)
from api.runs.errors import AttemptNotFound, RunnerNameInUse, RunnerNotFound, SpecOutdated
from api.runs.queue_class import QueueClass, has_queue_class
from api.runs.status import AttemptState, RunStatus
from api.runs.stored_spec import spec_of
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import Attempt, DeletedRun, Run, Runner
from api.tables.access.secrets.errors import SecretMissing, SecretNotForHost, SecretUnreadable
from api.tables.access.secrets.keyring import NO_KEYS, Keyring
from api.tables.access.secrets.store import secrets_of
from api.tables.ids import new_id
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import (
    EndReport,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisterRunner,
    RunnerCommand,
)
from hillclimb.spec.rules.version_skew import keys_at_default


def register(
    session: Session,
    project_id: str,
    body: RegisterRunner,
    *,
    now: datetime,
    identity: str | None = None,
) -> Runner:
    """Create or take over the runner of that name, with a fresh lease.

    Ends its attempts that the request does not list. `identity` is the caller's token, of which the
    hash is stored. Raises RunnerNameInUse for the name of another runner that lives, or of which an
    attempt has not ended.
    """
    names = {"project_id": project_id, "name": body.name}
    facts = {
        "slots": body.slots,
        "hostname": body.hostname,
        "draining": False,
        "registered_at": now,
        "lease_until": now + timedelta(seconds=RUNNER_LEASE_S),
    }
    identity_hash = _hash_of(identity)
    # One statement: two concurrent first registrations create one runner, and lock it.
    statement = insert(Runner).values(
        id=new_id("rnr"), identity_hash=identity_hash, **names, **facts
    )
    statement = statement.on_conflict_do_update(index_elements=[*names], set_=names)
    runner_id = session.scalar(statement.returning(Runner.id))
    runner = session.get_one(Runner, runner_id, populate_existing=True)
    claimed = store.attempts_of_runner(session, runner.id)
    if not _is_own(runner, identity_hash) and (claimed or runner.lease_until > now):
        raise RunnerNameInUse(
            f"Another runner of the project is named {body.name!r}: give this one a name of its own"
            " (HILLCLIMB_RUNNER_NAME). Where that runner has lost its state directory, its name is"
            f" free once its attempts have ended and it was silent for {RUNNER_LEASE_S:g} s."
        )
    runner.identity_hash = identity_hash
    for name, value in facts.items():
        setattr(runner, name, value)
    _end_lost(session, [attempt for attempt in claimed if attempt.id not in body.attempts], now=now)
    for attempt in claimed:
        if attempt.id in body.attempts:
            attempt.last_held_at = now
    return runner


def get_runner(
    session: Session, project_id: str, runner_id: str, *, identity: str | None = None
) -> Runner:
    """Return the runner, locked.

    Raises RunnerNotFound, and RunnerNameInUse where the runner is known by another `identity`.
    """
    query = select(Runner).where(Runner.id == runner_id, Runner.project_id == project_id)
    runner = session.scalar(query.with_for_update(key_share=True))
    if runner is None:
        raise RunnerNotFound(f"There is no runner {runner_id!r}: register again.")
    if not _is_own(runner, _hash_of(identity)):
        raise RunnerNameInUse(f"Another runner is {runner.name}: register again.")
    return runner


def _hash_of(identity: str | None) -> str | None:
    return None if identity is None else attempts.hash_token(identity)


def _is_own(runner: Runner, identity_hash: str | None) -> bool:
    """Return True for the runner's own token, and for any caller where it never gave one."""
    if runner.identity_hash is None:
        return True
    return hmac.compare_digest(runner.identity_hash, identity_hash or "")


def heartbeat(
    session: Session, runner: Runner, body: Heartbeat, *, now: datetime
) -> HeartbeatReply:
    """Extend the lease and return commands for the attempts that the runner has."""
    runner.draining = body.draining
    runner.lease_until = now + timedelta(seconds=RUNNER_LEASE_S)
    rows = session.scalars(select(Attempt).where(Attempt.id.in_(body.attempts))).all()
    mine = {attempt.id: attempt for attempt in rows if attempt.runner_id == runner.id}
    commands = []
    for attempt_id in body.attempts:
        attempt = mine.get(attempt_id)
        if attempt is None or attempt.state == AttemptState.ENDED.value:
            commands.append(RunnerCommand(attempt_id=attempt_id, action="kill"))
            continue
        attempt.last_held_at = now
        action = attempts.requested_action(attempt)
        if action is not None:
            commands.append(RunnerCommand(attempt_id=attempt_id, action=action))
    facts = {"project_id": runner.project_id, "now": now}
    num_runners, has_work = session.connection().execute(_CROWD, facts).one()
    return HeartbeatReply(
        commands=tuple(commands),
        lease_until=runner.lease_until,
        heartbeat_interval_s=heartbeat_interval_s(num_runners),
        has_work=has_work,
    )


_CROWD = text("""
SELECT (SELECT count(*) FROM runners WHERE project_id = :project_id AND lease_until > :now),
  EXISTS (SELECT FROM attempts JOIN runs ON runs.id = attempts.run_id
    WHERE attempts.state = 'scheduled' AND runs.project_id = :project_id
      AND runs.queue_class = 'runner' AND runs.deleting_at IS NULL)
""")


def heartbeat_interval_s(num_runners: int) -> float:
    """Return the interval for each of so many runners of a project."""
    shared = max(HEARTBEAT_INTERVAL_S, num_runners / HEARTBEATS_PER_S)
    return min(MAX_HEARTBEAT_INTERVAL_S, shared)


def claim(
    session: Session,
    runner: Runner,
    *,
    ingest_url: str,
    now: datetime,
    keyring: Keyring = NO_KEYS,
) -> LaunchPlan | None:
    """Give the runner the oldest scheduled attempt of its project, with the secrets of its spec.

    Null when there is none, and for a runner that drains or has no free slot.
    """
    if runner.draining:
        return None
    runner.lease_until = now + timedelta(seconds=RUNNER_LEASE_S)
    if len(store.attempts_of_runner(session, runner.id)) >= runner.slots:
        return None
    row = _oldest_scheduled(session, runner.project_id)
    if row is None:
        return None
    run, attempt = row
    try:
        spec = spec_of(run)
        secrets = secrets_of(session, keyring, spec, project_id=run.project_id, now=now)
    except (SpecOutdated, SecretMissing, SecretNotForHost, SecretUnreadable) as error:
        # Scheduled before the service was updated, or before the operator lost a master key; left
        # there, it would block all others.
        end = AttemptEnd(reason=ReasonCode.SPEC_REJECTED, message=str(error))
        attempts.end_attempt(session, run, attempt, end, now=now)
        return None
    token = attempts.claim(session, run, attempt, runner=(runner.id, runner.name), now=now)
    return LaunchPlan(
        run_id=run.id,
        attempt=attempt.number,
        attempt_id=attempt.id,
        attempt_token=token,
        ingest_url=ingest_url,
        spec=spec,
        at_default=keys_at_default(spec),
        resume_from=attempt.resume_from,
        manifests=attempts.manifests(session, run, spec),
        secrets=secrets,
        traceparent=attempts.trace_claim(session, run, attempt, now=now),
    )


def deleted_among(session: Session, runner: Runner, run_ids: Sequence[str]) -> Sequence[str]:
    """Return those of the runs that the runner's project had and deleted."""
    query = select(DeletedRun.id).where(
        DeletedRun.project_id == runner.project_id, DeletedRun.id.in_(run_ids)
    )
    return session.scalars(query.order_by(DeletedRun.id)).all()


def report_end(
    session: Session, runner: Runner, attempt_id: str, body: EndReport, *, now: datetime
) -> Run:
    """Record the runner's report that a trainer exited; idempotent.

    Raises AttemptNotFound for an attempt that this runner never claimed.
    """
    attempt = store.get_attempt(session, attempt_id)
    # Before anything is locked: a foreign run must not wait for this request.
    if attempt.runner_id != runner.id:
        raise AttemptNotFound(f"Runner {runner.name} has no attempt {attempt_id!r}.")
    run = store.lock_run(session, attempt.run_id)
    attempt = store.get_attempt(session, attempt_id)
    attempts.report_end(session, run, attempt, body, actor=f"runner:{runner.name}", now=now)
    return run


def _oldest_scheduled(session: Session, project_id: str) -> tuple[Run, Attempt] | None:
    """Return a scheduled attempt with its run locked; skips runs that another process locks."""
    query = (
        select(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Run.project_id == project_id, Attempt.state == AttemptState.SCHEDULED.value)
        .where(Run.status == RunStatus.PROVISIONING.value)
        .where(has_queue_class(QueueClass.RUNNER))
        .order_by(Attempt.scheduled_at)
        .limit(1)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
    )
    run = session.scalar(query.execution_options(populate_existing=True))
    attempt = store.newest_attempt(session, run) if run is not None else None
    if run is None or attempt is None or attempt.state != AttemptState.SCHEDULED.value:
        return None
    return run, attempt


def _end_lost(session: Session, lost: Sequence[Attempt], *, now: datetime) -> None:
    runs = {run_id: store.lock_run(session, run_id) for run_id in sorted({a.run_id for a in lost})}
    end = AttemptEnd(
        reason=ReasonCode.RUNNER_LOST, message="The runner registered again without the trainer."
    )
    for attempt in lost:
        fresh = store.get_attempt(session, attempt.id)
        attempts.end_attempt(session, runs[attempt.run_id], fresh, end, now=now)
