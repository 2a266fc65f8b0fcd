"""Things that need a run: while there is one, the run cannot be deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, Select, exists, or_, select
from sqlalchemy.orm import Session

from api.runs.status import TERMINAL
from api.tables import (
    CampaignCell,
    Checkpoint,
    Experiment,
    ExperimentRun,
    Issue,
    Run,
    RunEvent,
)
from hillclimb.protocol.spec_problems import SpecProblem

MAX_NAMED = 20
"""Dependents of each kind that a refusal names."""
ENDED = tuple(status.value for status in TERMINAL)


def dependents_of(session: Session, run: Run) -> Sequence[SpecProblem]:
    """Return what needs the run, each with a code (what it is) and a sentence (the way out)."""
    parts = (_live_runs, _started_from, _sharing_budget, _experiments, _issues)
    return [problem for part in parts for problem in part(session, run)]


def is_imitated(session: Session, run: Run) -> bool:
    """Return True if a run that has not ended reads the rollouts of this one."""
    query = _others(run).where(_imitates(run), Run.status.not_in(ENDED))
    return session.execute(query).first() is not None


def _live_runs(session: Session, run: Run) -> Iterator[SpecProblem]:
    """Runs that have not ended: they read its checkpoints or rollouts when an attempt starts."""
    named = or_(_resumes(run), _starts_from(run), _imitates(run))
    query = _others(run).where(named, Run.status.not_in(ENDED))
    for run_id, name in session.execute(query):
        yield _problem(
            "run_not_ended",
            f"Run {run_id} ({name}) has not ended and reads its files: cancel that run first.",
        )


def _started_from(session: Session, run: Run) -> Iterator[SpecProblem]:
    """Ended runs that started from its weights: nothing loads their checkpoints without them."""
    has_checkpoint = exists().where(Checkpoint.run_id == Run.id, Checkpoint.deleted_at.is_(None))
    query = _others(run).where(_starts_from(run), Run.status.in_(ENDED), has_checkpoint)
    for run_id, name in session.execute(query):
        yield _problem(
            "run_starts_from_it",
            f"The checkpoints of run {run_id} ({name}) are loaded over its weights: delete that run"
            " first.",
        )


def _sharing_budget(session: Session, run: Run) -> Iterator[SpecProblem]:
    """The run of which it was resumed: what it spent is spent of that one's budget."""
    source = ((run.spec.get("lineage") or {}).get("resumed_from") or {}).get("run_id")
    if source is None or not run.spec.get("budget"):
        return
    is_resumed = select(RunEvent.data["is_resumed"].as_boolean()).where(
        RunEvent.run_id == run.id, RunEvent.seq == 1
    )
    if session.scalar(is_resumed) and session.scalar(select(Run.id).where(Run.id == source)):
        yield _problem(
            "budget_shared",
            f"It spends of the budget of run {source}, which it was resumed from: delete that run"
            " first.",
        )


def _experiments(session: Session, run: Run) -> Iterator[SpecProblem]:
    cell = (CampaignCell.project_id == ExperimentRun.project_id) & (
        CampaignCell.digest == ExperimentRun.digest
    )
    query = (
        select(Experiment.key, ExperimentRun.number)
        .join(ExperimentRun, ExperimentRun.experiment_id == Experiment.id)
        .outerjoin(CampaignCell, cell)
        .where(or_(ExperimentRun.run_id == run.id, CampaignCell.run_id == run.id))
        .order_by(Experiment.key)
        .limit(MAX_NAMED)
    )
    for key, number in session.execute(query):
        yield _problem(
            "in_experiment",
            f"It is number {number} of experiment {key}, whose verdict counts it: take it out"
            f" first (hillclimb experiment remove {key} {number}).",
        )


def _issues(session: Session, run: Run) -> Iterator[SpecProblem]:
    cited = or_(Issue.baseline_run_id == run.id, Issue.after_run_id == run.id)
    query = select(Issue.number, Issue.closed_at).where(cited).order_by(Issue.number)
    for number, closed_at in session.execute(query.limit(MAX_NAMED)):
        way = (
            "name another evaluation in it first (hillclimb issue change)."
            if closed_at is None
            else "a closed issue does not change, and goes with its project only."
        )
        yield _problem("in_issue", f"Issue {number} has its figures from it: {way}")


def _others(run: Run) -> Select[str, str]:
    query = select(Run.id, Run.name).where(Run.project_id == run.project_id, Run.id != run.id)
    return query.order_by(Run.id).limit(MAX_NAMED)


def _resumes(run: Run) -> ColumnElement[bool]:
    source: ColumnElement[str] = Run.spec["lineage"]["resumed_from"]["run_id"].as_string()
    return source == run.id


def _starts_from(run: Run) -> ColumnElement[bool]:
    source: ColumnElement[str] = Run.spec["model"]["source"].as_string()
    return or_(source == f"run:{run.id}", source.startswith(f"run:{run.id}@"))


def _imitates(run: Run) -> ColumnElement[bool]:
    source: ColumnElement[str] = Run.spec["sft"]["rollouts_of"].as_string()
    return source == run.id


def _problem(code: str, message: str) -> SpecProblem:
    return SpecProblem(pointer="", code=code, message=message)
