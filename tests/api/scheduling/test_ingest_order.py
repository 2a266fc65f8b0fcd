"""However batches are cut, doubled, lost, sent again and reordered, the tables are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import null, select, update
from sqlalchemy.orm import Session

from api.results.evals.store import count_outcomes, list_evals
from api.scheduling.record import record_push
from api.tables import (
    Attempt,
    Checkpoint,
    ComputeRecord,
    Eval,
    Metric,
    OutcomeRecord,
    Run,
    RunEvent,
    StepSignalRecord,
)
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import CheckpointDeleted, CheckpointQualified, Event, TrainerEnded
from hillclimb.protocol.rundir import checkpoint_name
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import story

__all__ = ["story"]
DERIVED = (Checkpoint, ComputeRecord, Eval, Metric, OutcomeRecord, StepSignalRecord)
COMPUTE = {
    "num_rollouts": 16, "num_learned": 16, "num_resampled": 0, "num_ungraded": 0,
    "num_lost_tries": 0, "num_sampled_tokens": 900, "num_prefill_tokens": 400,
    "num_cached_tokens": 0, "num_trained_tokens": 900,
}  # fmt: skip


def launched(story: Story) -> str:
    run_id = story.submit(spec(env_keys=("booking",)))
    story.launch(run_id)
    return run_id


def told(story: Story, run_id: str) -> list[Event]:
    """All events of a trainer, one after the other: the numbers are 1, 2, …"""
    kept: list[Event] = [story.started(run_id)]
    for step in range(1, 4):
        kept.append(story.phase(run_id, step, "rollout"))
        trained = story.step(run_id, step, {"booking": 0.5}, tasks=2)
        kept.append(type(trained).model_validate({**trained.model_dump(), "compute": COMPUTE}))
        if step % 2 == 0:
            kept.append(story.evaluation(run_id, step, {"booking": 0.25 * step}, tasks=4))
            saved = story.checkpoint(run_id, step)
            kept.append(saved)
            place = story.place(run_id, step)
            kept.append(CheckpointQualified(**place, path=saved.path, duration_s=1.0))
    kept.append(CheckpointDeleted(**story.place(run_id, 3), path=checkpoint_name(2, 1)))
    ended = {"reason": ReasonCode.COMPLETED, "message": "", "training_seconds": 9.0}
    kept.append(TrainerEnded.model_validate({**story.place(run_id, 3), **ended}))
    return kept


def state(session: Session, run_id: str) -> dict[str, Any]:
    """Everything that ingest writes, without what names the run."""
    run = session.get_one(Run, run_id)
    attempt = session.scalars(select(Attempt).where(Attempt.run_id == run_id)).one()
    events = session.scalars(
        select(RunEvent).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
    ).all()
    rows = {
        model.__tablename__: sorted(
            repr([getattr(row, c.name) for c in model.__table__.columns if c.name != "run_id"])
            for row in session.scalars(select(model).where(model.run_id == run_id))
        )
        for model in DERIVED
    }
    return {
        "run": (run.status, run.progress_step, run.progress_total, run.last_seq),
        "attempt": (attempt.state, attempt.last_trainer_seq, attempt.trainer_code),
        "events": [(each.seq, each.type, each.actor, each.trainer_seq) for each in events],
        "data": [(each.at, each.data) for each in events if each.trainer_seq is not None],
        **rows,
    }


def send(story: Story, run_id: str, batch: Sequence[Event]) -> int:
    """Send a batch as a trainer does, and return the last recorded number."""
    token = story.plans[run_id].attempt_token
    with story.database.transaction() as session:
        _, reply = record_push(session, token, batch, now=story.now)
    return reply.last_trainer_seq


def complete(story: Story, run_id: str) -> dict[str, Any]:
    with story.database.transaction() as session:
        found = state(session, run_id)
        evals = list_evals(session, run_id)
        stored = count_outcomes(session, run_id, evals)
        session.execute(update(Eval).where(Eval.run_id == run_id).values(counts=null()))
        assert stored == count_outcomes(session, run_id, evals)
        session.rollback()
    story.seqs[run_id] = found["attempt"][1]
    story.report(run_id, ReasonCode.COMPLETED)
    return found


def pieces(num_events: int) -> st.SearchStrategy[list[tuple[int, int, bool]]]:
    """Parts of the stream, as (first, length, in reverse): any of them, in any order."""
    part = st.tuples(st.integers(0, num_events - 1), st.integers(1, num_events), st.booleans())
    return st.lists(part, max_size=8)


def test_the_tables_do_not_depend_on_how_the_events_arrived(story: Story) -> None:
    first = launched(story)
    events = told(story, first)
    assert [each.trainer_seq for each in events] == list(range(1, len(events) + 1))
    send(story, first, events)
    expected = complete(story, first)
    assert all(expected[model.__tablename__] for model in DERIVED)

    @settings(
        deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(parts=pieces(len(events)), doubled=st.booleans(), size=st.integers(1, len(events)))
    def check(parts: list[tuple[int, int, bool]], *, doubled: bool, size: int) -> None:
        run_id = launched(story)
        for start, length, is_reversed in parts:
            batch = events[start : start + length]
            send(story, run_id, batch[::-1] if is_reversed else batch)
        # What the trainer has no answer for is sent again, from the last recorded number on.
        last = send(story, run_id, events[:1])
        while last < len(events):
            batch = events[last : last + size]
            last = send(story, run_id, [*batch, *batch] if doubled else batch)
        assert complete(story, run_id) == expected

    check()
