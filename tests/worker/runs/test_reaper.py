"""Nothing outlives its owner, and no run is forgotten."""

from datetime import timedelta

from sqlalchemy import select, update

from api.http.dashboard.sessions import CODE_S, mint_code
from api.tables import ApiKey, Attempt, IdempotencyKey, Run, Runner
from api.tables.access.identity import DEFAULT_PROJECT, BrowserSession, Principal, ensure_key
from api.tables.access.members import end_session
from hillclimb.protocol.end_reasons import ReasonCode
from tests.worker.run_simulation import PROJECT, RunSimulation
from worker.runs import reaper


def test_attempt_of_an_ended_run_is_ended_and_its_trainer_killed(sim: RunSimulation) -> None:
    run_id = sim.running()
    attempt_id = sim.attempts(run_id)[0].id
    with sim.context.database.transaction() as session:
        session.execute(update(Run).where(Run.id == run_id).values(status="failed", due_at=None))
    assert reaper.sweep(sim.context, now=sim.now).num_attempts == 1
    assert sim.attempts(run_id)[0].end_code == "attempt_superseded"
    assert sim.heartbeat(attempt_id)[0].action == "kill"
    assert not reaper.sweep(sim.context, now=sim.now)


def test_superseded_attempt_is_ended_and_told_in_an_event(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=1)
    sim.reconcile(run_id)
    with sim.context.database.transaction() as session:
        revived = update(Attempt).where(Attempt.run_id == run_id, Attempt.number == 1)
        session.execute(revived.values(state="running", ended_at=None))
    assert reaper.sweep(sim.context, now=sim.now).num_attempts == 1
    assert sim.types(run_id)[-1] == "attempt.ended"
    assert sim.run(run_id).attempt == 2


def test_run_that_fell_off_the_sweep_is_due_again(sim: RunSimulation) -> None:
    run_id = sim.running()
    with sim.context.database.transaction() as session:
        session.execute(update(Run).where(Run.id == run_id).values(due_at=None))
    assert reaper.sweep(sim.context, now=sim.now).num_runs == 1
    assert sim.run(run_id).due_at == sim.now


def test_codes_that_signed_nobody_in_are_forgotten_when_they_no_longer_can(
    sim: RunSimulation,
) -> None:
    with sim.context.database.transaction() as session:
        ensure_key(session, "k" * 40, name="k", scopes=())
        key_id = session.scalar(select(ApiKey.id))
        caller = Principal(
            project_id=DEFAULT_PROJECT, key_id=str(key_id), key_name="k", scopes=frozenset()
        )
        mint_code(session, caller, secret="for tests", now=sim.now)
    assert reaper.sweep(sim.context, now=sim.now).num_codes == 0
    sim.advance(CODE_S + 1)
    assert reaper.sweep(sim.context, now=sim.now).num_codes == 1


def test_sessions_that_were_signed_out_are_forgotten_once_their_cookies_expire(
    sim: RunSimulation,
) -> None:
    ended = BrowserSession(sha256="0" * 64, expires_at=sim.now + timedelta(seconds=60))
    with sim.context.database.transaction() as session:
        ensure_key(session, "k" * 40, name="k", scopes=())
        end_session(session, DEFAULT_PROJECT, ended)
    assert reaper.sweep(sim.context, now=sim.now).num_sessions == 0
    sim.advance(61)
    assert reaper.sweep(sim.context, now=sim.now).num_sessions == 1


def test_old_keys_and_runners_that_never_worked_are_forgotten(sim: RunSimulation) -> None:
    sim.running()
    week = timedelta(days=8)
    with sim.context.database.transaction() as session:
        session.add(_runner("rnr_idle", sim))
        session.add(_key("old", sim))
    sim.advance(week.total_seconds())
    with sim.context.database.transaction() as session:
        session.add(_key("new", sim))
    reaped = reaper.sweep(sim.context, now=sim.now)
    assert (reaped.num_keys, reaped.num_runners) == (1, 1)
    with sim.context.database.transaction() as session:
        assert session.get(Runner, sim.runner_id) is not None


def _runner(name: str, sim: RunSimulation) -> Runner:
    return Runner(
        id=name,
        project_id=PROJECT,
        name=name,
        slots=1,
        hostname="h",
        draining=False,
        lease_until=sim.now,
        registered_at=sim.now,
    )


def _key(key: str, sim: RunSimulation) -> IdempotencyKey:
    return IdempotencyKey(
        project_id=PROJECT,
        method="POST",
        path="/v1/runs",
        key=key,
        body_hash="0",
        created_at=sim.now,
    )
