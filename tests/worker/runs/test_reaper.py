"""Nothing outlives its owner, and no run is forgotten."""

from datetime import timedelta

from sqlalchemy import select, update

from api.dashboard.sessions import CODE_S, mint_code
from api.identity import DEFAULT_PROJECT, Principal, ensure_key
from api.tables import ApiKey, Attempt, IdempotencyKey, Run, Runner
from tests.worker.scene import PROJECT, Scene
from trainer.contract.reasons import ReasonCode
from worker import reaper


def test_attempt_of_an_ended_run_is_ended_and_its_trainer_killed(scene: Scene) -> None:
    run_id = scene.running()
    attempt_id = scene.attempts(run_id)[0].id
    with scene.parts.database.transaction() as session:
        session.execute(update(Run).where(Run.id == run_id).values(status="failed", due_at=None))
    assert reaper.sweep(scene.parts, now=scene.now).num_attempts == 1
    assert scene.attempts(run_id)[0].end_code == "attempt_superseded"
    assert scene.heartbeat(attempt_id)[0].action == "kill"
    assert not reaper.sweep(scene.parts, now=scene.now)


def test_superseded_attempt_is_ended_and_told_in_an_event(scene: Scene) -> None:
    run_id = scene.running()
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=1)
    scene.reconcile(run_id)
    with scene.parts.database.transaction() as session:
        revived = update(Attempt).where(Attempt.run_id == run_id, Attempt.number == 1)
        session.execute(revived.values(state="running", ended_at=None))
    assert reaper.sweep(scene.parts, now=scene.now).num_attempts == 1
    assert scene.types(run_id)[-1] == "attempt.ended"
    assert scene.run(run_id).attempt == 2


def test_run_that_fell_off_the_sweep_is_due_again(scene: Scene) -> None:
    run_id = scene.running()
    with scene.parts.database.transaction() as session:
        session.execute(update(Run).where(Run.id == run_id).values(due_at=None))
    assert reaper.sweep(scene.parts, now=scene.now).num_runs == 1
    assert scene.run(run_id).due_at == scene.now


def test_codes_that_signed_nobody_in_are_forgotten_when_they_no_longer_can(scene: Scene) -> None:
    with scene.parts.database.transaction() as session:
        ensure_key(session, "k" * 40, name="k", scopes=())
        key_id = session.scalar(select(ApiKey.id))
        caller = Principal(
            project_id=DEFAULT_PROJECT, key_id=str(key_id), key_name="k", scopes=frozenset()
        )
        mint_code(session, caller, now=scene.now)
    assert reaper.sweep(scene.parts, now=scene.now).num_codes == 0
    scene.later(CODE_S + 1)
    assert reaper.sweep(scene.parts, now=scene.now).num_codes == 1


def test_old_keys_and_runners_that_never_worked_are_forgotten(scene: Scene) -> None:
    scene.running()
    week = timedelta(days=8)
    with scene.parts.database.transaction() as session:
        session.add(_runner("rnr_idle", scene))
        session.add(_key("old", scene))
    scene.later(week.total_seconds())
    with scene.parts.database.transaction() as session:
        session.add(_key("new", scene))
    reaped = reaper.sweep(scene.parts, now=scene.now)
    assert (reaped.num_keys, reaped.num_runners) == (1, 1)
    with scene.parts.database.transaction() as session:
        assert session.get(Runner, scene.runner_id) is not None


def _runner(name: str, scene: Scene) -> Runner:
    return Runner(
        id=name,
        project_id=PROJECT,
        name=name,
        slots=1,
        hostname="h",
        draining=False,
        lease_until=scene.now,
        registered_at=scene.now,
    )


def _key(key: str, scene: Scene) -> IdempotencyKey:
    return IdempotencyKey(
        project_id=PROJECT,
        method="POST",
        path="/v1/runs",
        key=key,
        body_hash="0",
        created_at=scene.now,
    )
