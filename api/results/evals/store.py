"""Queries of the eval figures; they read the highest attempt per step and decoding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Select,
    String,
    Values,
    column,
    func,
    literal,
    select,
    values,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased, make_transient

from api.results.errors import NoSuchEval, NoSuchRescoring
from api.tables import Eval, Metric, OutcomeRecord, RescoredOutcome, Run
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats.pass_rate import TaskCount, count_tasks

Records: TypeAlias = type[OutcomeRecord]
"""Outcomes to query: as they were stored, or with other grades."""
COUNTS = (
    "env_key",
    "task_key",
    "template",
    "held_out_template",
    "num_graded",
    "num_passed",
    "num_missing",
    "num_unbegun",
    "difficulty",
    "modality",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed rollouts of one environment that ended in the same way."""

    env_key: str
    stop_reason: str
    has_repeated_calls: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBatch:
    """The outcomes of one evaluation or one probe."""

    run_id: str
    split: str
    decoding: str
    step: int
    attempt: int
    pass_threshold: float

    def where(self, records: Records = OutcomeRecord) -> tuple[ColumnElement[bool], ...]:
        """Return the conditions that select exactly its outcomes."""
        return (
            records.run_id == self.run_id,
            records.split == self.split,
            records.decoding == self.decoding,
            records.step == self.step,
            records.attempt == self.attempt,
        )


def outcomes_of(verifier: str | None) -> Records:
    """Return the outcomes as they were stored, or with the grades of a rescoring.

    Those that the rescoring does not have are left out.
    """
    if verifier is None:
        return OutcomeRecord
    old, new = OutcomeRecord, RescoredOutcome
    grade = (new.status, new.score, new.reason)
    names = {column.key for column in grade}
    others = [each for each in OutcomeRecord.__table__.columns if each.name not in names]
    rescored = (
        select(*others, *grade)
        .join(new, (new.run_id == old.run_id) & (new.rollout_id == old.rollout_id))
        .where(new.verifier == verifier)
        .subquery()
    )
    return aliased(OutcomeRecord, rescored, adapt_on_names=True)


def list_evals(
    session: Session, run_id: str, *, threshold: float | None = None, verifier: str | None = None
) -> Sequence[Eval]:
    """Return the evaluations by step and decoding, the highest temperature first.

    Whatever is computed from them follows their `pass_threshold`. With `threshold` they have that
    one: copies that belong to no session. `verifier` selects those that were rescored by it.

    Raises:
        NoSuchRescoring: none was rescored by `verifier`.
    """
    query = (
        select(Eval)
        .where(Eval.run_id == run_id)
        .ext(distinct_on(Eval.step, Eval.temperature, Eval.decoding))
        .order_by(Eval.step, Eval.temperature.desc(), Eval.decoding, Eval.attempt.desc())
    )
    if verifier is not None:
        query = query.where(_has_grades(verifier))
    evals = session.scalars(query).all()
    if verifier is not None and not evals:
        raise NoSuchRescoring(
            f"no evaluation of run {run_id} was rescored by {verifier}: see its rescorings"
        )
    if threshold is not None:
        for evaluation in evals:
            make_transient(evaluation)
            evaluation.pass_threshold = threshold
    return evals


def no_evaluation(run: Run) -> NoSuchEval:
    """Return the error for a run without evaluations; imported figures alone are none."""
    if run.origin is None:
        return NoSuchEval(f"run {run.id} has no evaluation yet")
    return NoSuchEval(
        f"run {run.id} was imported from {run.origin['source']} ({run.origin['kind']}) and has no"
        " outcomes: its figures are metrics alone, from which no verdict follows. Import the dumps"
        " of its evaluations for verdicts, comparisons and patterns"
    )


def count_outcomes(
    session: Session, run_id: str, evals: Sequence[Eval], verifier: str | None = None
) -> dict[tuple[int, str], list[TaskCount]]:
    """Return per (step, decoding) the counts of its tasks, sorted by environment and task.

    Those that ingest has stored are read; with another threshold, or the grades of a rescoring,
    outcomes are counted. One statement each for all: a run has dozens of evaluations.
    """
    counts: dict[tuple[int, str], list[TaskCount]] = defaultdict(list)
    if evals and verifier is None:
        counts |= _stored_counts(session, run_id, evals)
    evals = [each for each in evals if (each.step, each.decoding) not in counts]
    if not evals:
        return counts
    chosen = _chosen(evals)
    records = outcomes_of(verifier)
    query = (
        _count_query(chosen.c.threshold, records)
        .add_columns(chosen.c.step, chosen.c.decoding)
        .join(
            chosen,
            (chosen.c.step == records.step)
            & (chosen.c.decoding == records.decoding)
            & (chosen.c.attempt == records.attempt),
        )
        .where(records.run_id == run_id, records.split == "eval")
        .group_by(chosen.c.step, chosen.c.decoding)
    )
    for *fields, step, decoding in session.execute(query):
        counts[step, decoding].append(TaskCount(**dict(zip(COUNTS, fields, strict=True))))
    return counts


def counts_to_store(
    outcomes: Sequence[OutcomeRow], *, pass_threshold: float
) -> list[list[Any]] | None:
    """Return the counts of an evaluation's tasks as rows of `COUNTS`.

    Null for outcomes whose task has several templates, which a count of the table keeps apart.
    """
    unique = {each.rollout_id: each for each in outcomes}.values()
    tasks = {(e.env_key, e.task_key, e.template, e.held_out_template) for e in unique}
    counts = count_tasks(unique, pass_threshold=pass_threshold)
    if len(tasks) != len(counts):
        return None
    return [[getattr(each, name) for name in COUNTS] for each in counts]


def count_batch(session: Session, batch: OutcomeBatch) -> list[TaskCount]:
    """Return the counts of a batch's tasks, sorted by environment and task."""
    query = _count_query(literal(batch.pass_threshold), OutcomeRecord).where(*batch.where())
    return [TaskCount(**row) for row in session.execute(query).mappings()]


def count_failures(
    session: Session, run_id: str, evaluation: Eval, verifier: str | None = None
) -> list[FailureGroup]:
    """Return the graded rollouts of one evaluation that did not pass, grouped by their end."""
    records = outcomes_of(verifier)
    repeated = records.num_repeated_calls > 0
    query = (
        select(records.env_key, records.stop_reason, repeated, func.count())
        .where(
            *of_eval(run_id, evaluation).where(records),
            records.status == OutcomeStatus.GRADED,
            records.score < evaluation.pass_threshold,
        )
        .group_by(records.env_key, records.stop_reason, repeated)
    )
    return [
        FailureGroup(env_key=env, stop_reason=stop, has_repeated_calls=again, count=count)
        for env, stop, again, count in session.execute(query)
    ]


def training_seconds(session: Session, run_id: str) -> float:
    """Return the seconds of all attempts in training steps, repeated steps included.

    The sum of the steps' own timings: a killed attempt reports no duration.
    """
    query = select(func.sum(Metric.value)).where(
        Metric.run_id == run_id, Metric.name == "timing/step", Metric.decoding == "train"
    )
    return float(session.scalar(query) or 0.0)


def of_eval(run_id: str, evaluation: Eval) -> OutcomeBatch:
    """Return the outcomes of one evaluation."""
    return OutcomeBatch(
        run_id=run_id,
        split="eval",
        decoding=evaluation.decoding,
        step=evaluation.step,
        attempt=evaluation.attempt,
        pass_threshold=evaluation.pass_threshold,
    )


def _chosen(evals: Sequence[Eval]) -> Values:
    """Return the places of evaluations, and their thresholds, as a table of a statement."""
    return values(
        column("step", Integer),
        column("decoding", String),
        column("attempt", Integer),
        column("threshold", Float),
        name="chosen",
    ).data([(each.step, each.decoding, each.attempt, each.pass_threshold) for each in evals])


def _stored_counts(
    session: Session, run_id: str, evals: Sequence[Eval]
) -> dict[tuple[int, str], list[TaskCount]]:
    """Return the counts that ingest has stored with the thresholds of `evals`."""
    chosen = _chosen(evals)
    is_same = (
        (chosen.c.step == Eval.step)
        & (chosen.c.decoding == Eval.decoding)
        & (chosen.c.attempt == Eval.attempt)
        & (chosen.c.threshold == Eval.pass_threshold)
    )
    query = (
        select(Eval.step, Eval.decoding, Eval.counts)
        .join(chosen, is_same)
        .where(Eval.run_id == run_id, Eval.counts.is_not(None))
    )
    return {
        (step, decoding): [TaskCount(**dict(zip(COUNTS, row, strict=True))) for row in rows]
        for step, decoding, rows in session.execute(query)
        if rows is not None  # JSON's null: they are counted
    }


def _count_query(threshold: ColumnElement[float], records: Records) -> Select[*tuple[Any, ...]]:
    """Count as `hillclimb.stats.pass_rate.count_tasks` does, in the database."""
    graded = records.status == OutcomeStatus.GRADED
    passed = graded & (records.score >= threshold)
    unbegun = records.stop_reason == StopReason.NOT_STARTED
    task = (
        records.env_key,
        records.task_key,
        records.template,
        records.held_out_template,
    )
    return (
        select(
            *task,
            func.count().filter(graded).label("num_graded"),
            func.count().filter(passed).label("num_passed"),
            func.count().filter(~graded).label("num_missing"),
            func.count().filter(unbegun).label("num_unbegun"),
            func.max(records.difficulty).label("difficulty"),
            func.max(records.modality).label("modality"),
        )
        .group_by(*task)
        .order_by(records.env_key, records.task_key)
    )


def _has_grades(verifier: str) -> ColumnElement[bool]:
    """Return the condition that an evaluation has outcomes with grades of a rescoring."""
    old, new = OutcomeRecord, RescoredOutcome
    return (
        select(literal(1))
        .select_from(old)
        .join(new, (new.run_id == old.run_id) & (new.rollout_id == old.rollout_id))
        .where(
            old.run_id == Eval.run_id,
            old.split == "eval",
            old.decoding == Eval.decoding,
            old.step == Eval.step,
            old.attempt == Eval.attempt,
            new.verifier == verifier,
        )
        .exists()
    )
