"""Runners: registered under a lease, heard by heartbeats, given attempts, told to stop them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.ids import new_id
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.errors import AttemptNotFound, RunnerNotFound
from api.runs.reasons import OVERDUE, REASONS
from api.runs.status import AttemptState, RunStatus
from api.tables import Attempt, Run, Runner
from trainer.contract.launch import (
    AttemptEnd,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisterRunner,
    RunnerCommand,
)
from trainer.contract.reasons import ReasonCode
from trainer.contract.spec import RunSpec

LEASE_S = 60.0
"""A runner that was not heard for this long is gone."""
HEARTBEAT_INTERVAL_S = 2.0
"""How soon a cancellation reaches a trainer."""


def register(session: Session, project_id: str, body: RegisterRunner, *, now: datetime) -> Runner:
    """Return the runner of that name, made or taken over, with a fresh lease.

    Attempts that the service thinks it holds and that it does not name are over.
    """
    query = select(Runner).where(Runner.project_id == project_id, Runner.name == body.name)
    runner = session.scalar(query.with_for_update())
    if runner is None:
        runner = Runner(id=new_id("rnr"), project_id=project_id, name=body.name)
        session.add(runner)
    runner.slots = body.slots
    runner.hostname = body.hostname
    runner.draining = False
    runner.registered_at = now
    runner.lease_until = now + timedelta(seconds=LEASE_S)
    session.flush()
    for attempt in store.held_attempts(session, runner.id):
        if attempt.id in body.attempts:
            attempt.last_held_at = now
        else:
            _lose(session, attempt, now=now)
    return runner


def forgive_absence(session: Session, *, now: datetime) -> None:
    """Give every runner that holds an attempt a fresh lease: the service itself was away.

    Called when an API process starts. Without it, an outage longer than the lease would end
    healthy trainers before their runners could speak again.
    """
    held = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
    for attempt in session.scalars(select(Attempt).where(Attempt.state.in_(held))):
        attempt.last_held_at = now
    holders = select(Attempt.runner_id).where(Attempt.state.in_(held))
    for runner in session.scalars(select(Runner).where(Runner.id.in_(holders))):
        runner.lease_until = max(runner.lease_until, now + timedelta(seconds=LEASE_S))


def get_runner(session: Session, project_id: str, runner_id: str) -> Runner:
    """Return the runner, locked; raises RunnerNotFound."""
    query = select(Runner).where(Runner.id == runner_id, Runner.project_id == project_id)
    found = session.scalar(query.with_for_update())
    if found is None:
        raise RunnerNotFound(f"There is no runner {runner_id!r}: register again.")
    return found


def heartbeat(
    session: Session, runner: Runner, body: Heartbeat, *, now: datetime
) -> HeartbeatReply:
    """Extend the lease and return what to do with the attempts the runner holds."""
    runner.draining = body.draining
    runner.lease_until = now + timedelta(seconds=LEASE_S)
    known = session.scalars(select(Attempt).where(Attempt.id.in_(body.attempts))).all()
    mine = {attempt.id: attempt for attempt in known if attempt.runner_id == runner.id}
    commands = []
    for attempt_id in body.attempts:
        attempt = mine.get(attempt_id)
        if attempt is None or attempt.state == AttemptState.ENDED.value:
            commands.append(RunnerCommand(attempt_id=attempt_id, action="kill"))
            continue
        attempt.last_held_at = now
        if attempt.kill_requested_at is not None:
            commands.append(RunnerCommand(attempt_id=attempt_id, action="kill"))
        elif attempt.stop_requested_at is not None:
            commands.append(RunnerCommand(attempt_id=attempt_id, action="stop"))
    return HeartbeatReply(commands=tuple(commands), lease_until=runner.lease_until)


def claim(session: Session, runner: Runner, *, ingest_url: str, now: datetime) -> LaunchPlan | None:
    """Give the runner the oldest offered attempt of its project; null when it gets none."""
    num_held = len(store.held_attempts(session, runner.id))
    if runner.draining or num_held >= runner.slots:
        return None
    runner.lease_until = now + timedelta(seconds=LEASE_S)
    found = _oldest_offer(session, runner.project_id)
    if found is None:
        return None
    run, attempt = found
    token = attempts.claim(session, run, attempt, runner=(runner.id, runner.name), now=now)
    return LaunchPlan(
        run_id=run.id,
        attempt=attempt.number,
        attempt_id=attempt.id,
        attempt_token=token,
        ingest_url=ingest_url,
        spec=RunSpec.model_validate(run.spec),
        resume_from=attempt.resume_from,
    )


def report_end(
    session: Session, runner: Runner, attempt_id: str, body: AttemptEnd, *, now: datetime
) -> Run:
    """Take the runner's word that a trainer is gone; repeating it changes nothing.

    Raises AttemptNotFound for an attempt this runner never held.
    """
    held = store.get_attempt(session, attempt_id)
    run = store.lock_run(session, held.run_id)
    attempt = store.get_attempt(session, attempt_id)
    if attempt.runner_id != runner.id:
        raise AttemptNotFound(f"Runner {runner.name} has no attempt {attempt_id!r}.")
    killed_by_us = attempt.kill_requested_at is not None and attempt.trainer_code is None
    reason = OVERDUE.get(RunStatus(run.status), body.reason) if killed_by_us else body.reason
    end = End(
        reason=reason,
        message=REASONS[reason].wording if killed_by_us else body.message,
        actor=f"runner:{runner.name}",
        exit_code=body.exit_code,
        final_trainer_seq=body.last_trainer_seq,
    )
    attempts.end_attempt(session, run, attempt, end, now=now)
    return run


def _oldest_offer(session: Session, project_id: str) -> tuple[Run, Attempt] | None:
    """Return an offered attempt with its run locked; runs that someone works on are skipped."""
    query = (
        select(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Run.project_id == project_id, Attempt.state == AttemptState.OFFERED.value)
        .where(Run.status == RunStatus.PROVISIONING.value)
        .order_by(Attempt.offered_at)
        .limit(1)
        .with_for_update(of=Run, skip_locked=True)
    )
    run = session.scalar(query.execution_options(populate_existing=True))
    attempt = store.newest_attempt(session, run) if run is not None else None
    if run is None or attempt is None or attempt.state != AttemptState.OFFERED.value:
        return None
    return run, attempt


def _lose(session: Session, attempt: Attempt, *, now: datetime) -> None:
    run = store.lock_run(session, attempt.run_id)
    fresh = store.get_attempt(session, attempt.id)
    reason = ReasonCode.RUNNER_LOST
    end = End(reason=reason, message="The runner came back without the trainer.")
    attempts.end_attempt(session, run, fresh, end, now=now)
