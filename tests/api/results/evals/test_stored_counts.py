"""Counts that ingest stores beside an evaluation are those of its outcomes, and save a count."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, event, func, null, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from api.results.evals.store import count_outcomes, counts_to_store, list_evals
from api.tables import Eval, OutcomeRecord
from hillclimb.protocol.events import EvalCompleted
from hillclimb.protocol.outcomes import OutcomeRow, StopReason
from tests.api.fixtures.story import Story, rollout

Counts = dict[tuple[int, str], list[Any]]
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def by_ingest_and_by_recount(session: Session, run_id: str) -> tuple[Counts, Counts]:
    """Return the stored counts of the run's evaluations, and those of its outcomes."""
    evals = list_evals(session, run_id)
    assert session.scalar(select(func.count()).where(Eval.counts.is_not(None))) == len(evals)
    stored = count_outcomes(session, run_id, evals)
    session.execute(update(Eval).values(counts=null()))
    recounted = count_outcomes(session, run_id, evals)
    session.rollback()
    return stored, recounted


outcomes = st.lists(
    st.tuples(
        st.sampled_from(["booking", "github", "out\0look"]),
        st.integers(0, 6),
        st.sampled_from([True, False, None]),
        st.integers(0, 3),
        st.sampled_from([StopReason.DONE, StopReason.NOT_STARTED]),
    ),
    min_size=1,
    max_size=30,
)


def row(env: str, task: int, passed: bool | None, sample: int, stop: StopReason) -> OutcomeRow:
    made = rollout(env, task, passed=passed, step=4, sample=sample)
    more = {"difficulty": task % 4 or None, "modality": ("browser", "tool_use")[task % 2]}
    more |= {"stop_reason": stop} if passed is None else {"score": (task + sample) / 9 * passed}
    return OutcomeRow.model_validate({**made.model_dump(), **more})


def evaluated(story: Story, run_id: str, rows: tuple[OutcomeRow, ...], threshold: float) -> None:
    made = story.evaluation(run_id, 4, {"booking": 0.5}, tasks=1)
    facts = {**made.model_dump(), "outcomes": rows, "pass_threshold": threshold}
    story.push(run_id, EvalCompleted.model_validate(facts))


def test_stored_counts_equal_those_of_the_outcomes(story: Story) -> None:
    """Also of rollouts that an event has twice, and of names with a NUL."""
    run_id = story.running()

    @settings(deadline=None, max_examples=20, suppress_health_check=CHECKS)
    @given(drawn=outcomes, threshold=st.sampled_from([0.25, 0.5, 1.0]))
    def check(drawn: list[tuple[Any, ...]], threshold: float) -> None:
        with story.database.transaction() as session:
            session.execute(delete(OutcomeRecord).where(OutcomeRecord.run_id == run_id))
            session.execute(delete(Eval).where(Eval.run_id == run_id))
        evaluated(story, run_id, tuple(row(*each) for each in drawn), threshold)
        with story.database.transaction() as session:
            stored, recounted = by_ingest_and_by_recount(session, run_id)
        assert stored == recounted
        assert stored

    check()


def test_only_another_threshold_or_an_old_evaluation_counts_outcomes(story: Story) -> None:
    run_id = story.running()
    evaluated(story, run_id, (row("booking", 1, True, 3, StopReason.DONE),), 0.25)
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    def num_scans(threshold: float | None) -> tuple[int, int]:
        statements.clear()
        (task,) = count_outcomes(session, run_id, list_evals(session, run_id, threshold=threshold))[
            4, "sampled"
        ]
        session.expunge_all()
        return sum("FROM outcomes" in each for each in statements), task.num_passed

    with story.database.transaction() as session:
        engine = session.get_bind()
        event.listen(engine, "before_cursor_execute", note)
        try:
            assert num_scans(None) == (0, 1)
            assert num_scans(0.25) == (0, 1)
            assert num_scans(0.9) == (1, 0)
            session.execute(update(Eval).values(counts=null()))
            assert num_scans(None) == (1, 1)
            session.execute(update(Eval).values(counts=JSONB.NULL))
            assert num_scans(None) == (1, 1)
        finally:
            event.remove(engine, "before_cursor_execute", note)


def test_a_task_with_two_templates_is_left_to_the_count_of_the_table() -> None:
    rows = [row("booking", task, True, task, StopReason.DONE) for task in (1, 2)]
    assert counts_to_store(rows, pass_threshold=1.0) is not None
    rows.append(rows[0].model_copy(update={"template": "another", "rollout_id": "another"}))
    assert counts_to_store(rows, pass_threshold=1.0) is None
