"""Ingest: idempotent, contiguous, and everything derived in the same transaction."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import select, text

from api.runs.errors import AttemptSuperseded, UnknownToken, UnsupportedSchema
from api.runs.journal import CHANNEL, Draft, append
from api.runs.status import AttemptState
from api.runs.store import get_attempt, lock_run
from api.scheduling.record import record_push
from api.tables import Checkpoint, Eval, Metric, OutboxMessage, OutcomeRecord, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import CheckpointDeleted, CheckpointQualified, CheckpointRefused
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


def test_repeated_events_change_nothing(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    batch = (make.started(1), make.step(2, 1, make.outcome("a")), make.saved(3, 1))
    first = stage.push(plan, *batch)
    before = stage.types(run_id)
    second = stage.push(plan, *batch)
    assert (first.accepted, second.accepted, second.last_trainer_seq) == (2, 0, 3)
    assert stage.types(run_id) == before
    assert len(stage.rows(OutcomeRecord)) == 1


def test_only_the_part_before_a_gap_is_accepted(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    reply = stage.push(plan, make.phase(2), make.phase(3), make.phase(5), make.phase(6))
    assert (reply.accepted, reply.last_trainer_seq) == (2, 3)
    reply = stage.push(plan, *(make.phase(n) for n in range(2, 7)))
    assert (reply.accepted, reply.last_trainer_seq) == (3, 6)
    numbers = [e.trainer_seq for e in stage.events(run_id) if e.trainer_seq is not None]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_results_are_derived_from_the_events(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    rows = (make.outcome("a", 1.0), make.outcome("b", 0.0, env_key="booking"))
    stage.push(
        plan,
        make.step(2, 1, *rows),
        make.evaluated(3, 1, make.outcome("c", split="eval", decoding="sampled")),
        make.saved(4, 1),
    )
    assert {(m.name, m.decoding, m.value) for m in stage.rows(Metric)} == {
        ("reward/avg_raw_reward", "train", 0.5),
        ("eval/booking/pass_at_1", "sampled", 0.5),
    }
    assert {(o.rollout_id, o.split, o.score) for o in stage.rows(OutcomeRecord)} == {
        ("a", "train", 1.0),
        ("b", "train", 0.0),
        ("c", "eval", 1.0),
    }
    assert [(e.step, e.decoding, e.attempt) for e in stage.rows(Eval)] == [(1, "sampled", 1)]
    assert [c.size_bytes for c in stage.rows(Checkpoint)] == [5_000_000_000]
    run = stage.run(run_id)
    assert (run.progress_step, run.progress_eta_s) == (1, 10.0)


def test_a_stored_event_has_rates_instead_of_its_outcomes(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    stage.push(plan, make.step(2, 1, make.outcome("a"), make.outcome("b", 0.0, task_key="t2")))
    event = stage.events(run_id)[-1]
    assert "outcomes" not in event.data
    assert event.data["num_outcomes"] == 2
    assert event.data["envs"]["booking"]["pass_at_1"] == 0.5
    assert event.data["metrics"] == {"reward/avg_raw_reward": 0.5}


def test_a_deleted_checkpoint_is_not_resumed_from(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1), make.saved(3, 2))
    deleted = {"trainer_seq": 4, "at": make.AT, "step": 2}
    path = "checkpoints/global_step_2/attempt-1"
    stage.push(plan, CheckpointDeleted.model_validate({**deleted, "path": path}))
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    resume_from = stage.launch(run_id, runner_id).resume_from
    assert resume_from is not None
    assert resume_from.endswith("global_step_1/attempt-1")


def refused(seq: int, step: int, reason: str = "no_update: loss nan") -> CheckpointRefused:
    path = f"checkpoints/global_step_{step}/attempt-1"
    return CheckpointRefused(trainer_seq=seq, at=make.AT, step=step, path=path, reason=reason)


def test_a_refused_checkpoint_is_not_resumed_from(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1), make.saved(3, 2))
    stage.push(plan, refused(4, 2, "no_update: \x00"))
    assert {c.step: (c.qualification, c.refusal) for c in stage.rows(Checkpoint)} == {
        1: (None, None),
        2: ("refused", "no_update: \ufffd"),
    }
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    resume_from = stage.launch(run_id, runner_id).resume_from
    assert resume_from is not None
    assert resume_from.endswith("global_step_1/attempt-1")


def test_where_all_checkpoints_are_refused_the_run_does_not_start_over(stage: Stage) -> None:
    """The trainer gets the newest one and ends with the reason."""
    run_id, runner_id, plan = stage.running(make.saved(2, 1), make.saved(3, 2))
    stage.push(plan, refused(4, 1), refused(5, 2))
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    resume_from = stage.launch(run_id, runner_id).resume_from
    assert resume_from is not None
    assert resume_from.endswith("global_step_2/attempt-1")


def test_a_checkpoint_that_passes_a_later_trial_is_no_longer_refused(stage: Stage) -> None:
    _, _, plan = stage.running(make.saved(2, 1))
    path = "checkpoints/global_step_1/attempt-1"
    passed = CheckpointQualified(trainer_seq=4, at=make.AT, step=1, path=path, duration_s=1.5)
    stage.push(plan, refused(3, 1), passed)
    assert [(c.qualification, c.refusal) for c in stage.rows(Checkpoint)] == [("qualified", None)]


def test_a_metric_that_is_not_a_number_is_null_in_the_event_and_no_metric(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    stage.push(plan, make.step(2, 1, metrics={"loss": math.nan, "kl": math.inf, "lr": 0.1}))
    metrics = stage.events(run_id)[-1].data["metrics"]
    assert metrics == {"loss": None, "kl": None, "lr": 0.1}
    assert [m.name for m in stage.rows(Metric)] == ["lr"]


def test_a_zero_character_from_a_model_does_not_stop_the_events(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    row = make.outcome("a", None, status="infra_error", reason="said \x00")
    stage.push(plan, make.step(2, 1, row), make.ended(3, ReasonCode.LEARNER_FAILED, "bad \x00"))
    stage.end(runner_id, plan, ReasonCode.LEARNER_FAILED)
    assert stage.rows(OutcomeRecord)[0].reason == "said \ufffd"
    assert stage.run(run_id).end_message == "bad \ufffd"


def test_an_unknown_token_is_refused(stage: Stage) -> None:
    with (
        pytest.raises(UnknownToken),
        stage.database.transaction() as session,
    ):
        record_push(session, "hca_unknown", [make.started()], now=stage.now)


def test_the_present_and_the_former_schema_are_accepted_and_no_other(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    former = make.phase(2).model_copy(update={"schema_version": 0})
    assert stage.push(plan, former).accepted == 1
    future = make.phase(3).model_copy(update={"schema_version": 2})
    with pytest.raises(UnsupportedSchema, match="takes 0 and 1"):
        stage.push(plan, future)
    assert stage.types(run_id)[-1] == "phase.started"


def test_a_run_is_starting_until_its_trainer_has_started(stage: Stage) -> None:
    runner_id, run_id = stage.register(), stage.submit()
    plan = stage.launch(run_id, runner_id)
    deadline = stage.run(run_id).deadline_at
    stage.push(plan, make.starting(1, "imports"), make.starting(2, "imports", 6.1))
    stage.push(plan, make.starting(3, "ray"))
    run = stage.run(run_id)
    assert (run.status, run.progress_phase, run.started_at) == ("starting", "ray", None)
    assert run.deadline_at == deadline
    ray = {"phase": "ray", "seconds": 3.2}
    stage.push(plan, make.starting(4, "ray", 3.2), make.started(5, startup=[ray]))
    assert stage.run(run_id).status == "running"
    assert stage.events(run_id)[-1].data["startup"] == [ray]


def test_the_token_is_nowhere_in_the_database(stage: Stage) -> None:
    _, _, plan = stage.running()
    with stage.database.transaction() as session:
        dump = [
            str(session.execute(text(f"SELECT * FROM {name}")).all())
            for name in ("attempts", "events", "runs")
        ]
    assert not any(plan.attempt_token in table for table in dump)


def test_seq_has_no_gap_under_four_concurrent_writers(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    already = stage.run(run_id).last_seq
    pushed = [make.phase(n) for n in range(2, 102)]

    def push() -> None:
        for start in range(0, 100, 10):
            stage.push(plan, *pushed[: start + 10])

    def note(name: str) -> None:
        for number in range(50):
            with stage.database.transaction() as session:
                run = lock_run(session, run_id)
                append(session, run, [Draft(type="run.noted", data={"by": name, "n": number})])

    jobs = [
        threading.Thread(target=push),
        threading.Thread(target=push),
        threading.Thread(target=note, args=("a",)),
        threading.Thread(target=note, args=("b",)),
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    found = stage.events(run_id)[already:]
    assert len(found) == 200
    assert all(after.seq == before.seq + 1 for before, after in pairwise(found))
    assert [e.trainer_seq for e in found if e.trainer_seq] == list(range(2, 102))


def test_a_push_that_waited_for_its_run_sees_the_attempt_as_it_is_then(stage: Stage) -> None:
    """One statement reads and locks both, and this attempt ends while it waits for the run."""
    run_id, _, plan = stage.running()
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with ThreadPoolExecutor(1) as pool:
        with stage.database.transaction() as session:
            lock_run(session, run_id)
            push = pool.submit(stage.push, plan, make.phase(2))
            while not session.scalar(waiting):
                assert not push.done()
                time.sleep(0.01)
            attempt = get_attempt(session, plan.attempt_id)
            attempt.state, attempt.last_trainer_seq = AttemptState.ENDED.value, 7
        with pytest.raises(AttemptSuperseded, match="has ended: stop"):
            push.result()


def test_a_commit_announces_its_newest_event(stage: Stage, database_url: str) -> None:
    run_id, _, plan = stage.running()
    url = database_url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        stage.push(plan, make.phase(2), make.phase(3))
        heard = [n.payload for n in listener.notifies(timeout=5, stop_after=1)]
    assert heard == [f"{run_id}:{stage.run(run_id).last_seq}"]


def test_events_for_slack_are_in_the_outbox_when_they_are_in_the_table(stage: Stage) -> None:
    run_id, _, plan = stage.running(notify={"slack": {"channel": "#training"}})
    stage.push(plan, make.evaluated(2, 0, make.outcome("a", split="eval", decoding="sampled")))
    told = [m for m in stage.rows(OutboxMessage) if m.kind != "opened"]
    assert sorted(m.kind for m in told) == ["eval", "started"]
    with stage.database.transaction() as session:
        query = select(RunEvent.seq).where(RunEvent.run_id == run_id)
        seqs = set(session.scalars(query.where(RunEvent.trainer_seq.is_not(None))))
    assert {m.payload["seq"] for m in told} == seqs
