"""Runners: registered under a lease, heard by heartbeats, given attempts, told to stop them.

Rows are locked in one order, everywhere: runners, runs (by id), attempts. Who holds a run never
waits for a runner, and who has written an attempt never waits for a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.ids import new_id
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.errors import AttemptNotFound, RunnerNotFound, SpecOutdated
from api.runs.lanes import Lane, in_lane
from api.runs.light import LIGHT_AT_ONCE, kind, light
from api.runs.status import AttemptState, RunStatus
from api.runs.stored_spec import spec_of
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

LEASE_S = 60.0
"""A runner that was not heard for this long is gone."""
HEARTBEAT_INTERVAL_S = 2.0
"""How soon a cancellation reaches a trainer."""


def register(session: Session, project_id: str, body: RegisterRunner, *, now: datetime) -> Runner:
    """Return the runner of that name, made or taken over, with a fresh lease.

    Attempts that the service thinks it holds and that it does not name are over.
    """
    names = {"project_id": project_id, "name": body.name}
    facts = {
        "slots": body.slots,
        "kinds": list(body.kinds),
        "hostname": body.hostname,
        "draining": False,
        "registered_at": now,
        "lease_until": now + timedelta(seconds=LEASE_S),
    }
    # One statement: two first registrations at once make one runner, and lock it.
    statement = insert(Runner).values(id=new_id("rnr"), **names, **facts)
    runner_id = session.scalar(
        statement.on_conflict_do_update(index_elements=[*names], set_=facts).returning(Runner.id)
    )
    runner = session.get_one(Runner, runner_id, populate_existing=True)
    held = store.held_attempts(session, runner.id)
    _lose(session, [attempt for attempt in held if attempt.id not in body.attempts], now=now)
    for attempt in held:
        if attempt.id in body.attempts:
            attempt.last_held_at = now
    return runner


def get_runner(session: Session, project_id: str, runner_id: str) -> Runner:
    """Return the runner, locked; raises RunnerNotFound."""
    query = select(Runner).where(Runner.id == runner_id, Runner.project_id == project_id)
    found = session.scalar(query.with_for_update(key_share=True))
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
        action = attempts.wanted_of(attempt)
        if action is not None:
            commands.append(RunnerCommand(attempt_id=attempt_id, action=action))
    return HeartbeatReply(commands=tuple(commands), lease_until=runner.lease_until)


def claim(
    session: Session, runner: Runner, *, ingest_url: str, now: datetime, only_light: bool = False
) -> LaunchPlan | None:
    """Give the runner the oldest offered attempt of its project; null when it gets none.

    A runner without a free slot gets only what needs none, and every runner only kinds it knows.
    """
    if runner.draining:
        return None
    num_held, num_light = store.num_held(session, runner.id)
    only_light = only_light or num_held - num_light >= runner.slots
    kinds = [] if only_light else [in_lane(Lane.RUNNER)]
    kinds += [light()] if num_light < LIGHT_AT_ONCE else []
    runner.lease_until = now + timedelta(seconds=LEASE_S)
    wanted = or_(false(), *kinds) & kind().in_(runner.kinds)
    found = _oldest_offer(session, runner.project_id, wanted)
    if found is None:
        return None
    run, attempt = found
    try:
        spec = spec_of(run)
    except SpecOutdated as error:
        # The offer stood when the service was updated; left there, it would keep all others back.
        end = End(reason=ReasonCode.SPEC_REJECTED, message=str(error))
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
    attempts.report_end(session, run, attempt, body, actor=f"runner:{runner.name}", now=now)
    return run


def _oldest_offer(
    session: Session, project_id: str, wanted: ColumnElement[bool]
) -> tuple[Run, Attempt] | None:
    """Return an offered attempt with its run locked; runs that someone works on are skipped."""
    query = (
        select(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Run.project_id == project_id, Attempt.state == AttemptState.OFFERED.value)
        .where(Run.status == RunStatus.PROVISIONING.value)
        .where(wanted)
        .order_by(Attempt.offered_at)
        .limit(1)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
    )
    run = session.scalar(query.execution_options(populate_existing=True))
    attempt = store.newest_attempt(session, run) if run is not None else None
    if run is None or attempt is None or attempt.state != AttemptState.OFFERED.value:
        return None
    return run, attempt


def _lose(session: Session, lost: Sequence[Attempt], *, now: datetime) -> None:
    runs = {run_id: store.lock_run(session, run_id) for run_id in sorted({a.run_id for a in lost})}
    end = End(reason=ReasonCode.RUNNER_LOST, message="The runner came back without the trainer.")
    for attempt in lost:
        fresh = store.get_attempt(session, attempt.id)
        attempts.end_attempt(session, runs[attempt.run_id], fresh, end, now=now)
