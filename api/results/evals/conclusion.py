"""The result of a run: its first and last evaluation, and the line that concludes its training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import exists, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from api.results.evals.report import compare_all_tasks, num_candidates
from api.results.evals.store import count_outcomes, list_evals
from api.runs.status import TERMINAL, RunStatus
from api.tables import Eval, Run, StepSignalRecord
from hillclimb.stats.conclusion import Conclusion, EvalFigures, TrainingFigures, conclude
from hillclimb.stats.pass_rate import pass_rate

SUMS = ("num_rollouts", "num_graded", "num_groups", "num_mixed", "num_all_zero", "num_all_one")


def result_of_run(session: Session, run: Run) -> EvalFigures | None:
    """Return the first and the last evaluation under the run's first decoding, compared.

    None where the run has no evaluation.
    """
    evals = list_evals(session, run.id)
    if not evals:
        return None
    first, last = _ends(evals)
    counts = count_outcomes(session, run.id, [first, last])
    old, new = (counts[each.step, each.decoding] for each in (first, last))
    if first.step == last.step:
        rate = pass_rate(new)
        return EvalFigures(
            decoding=last.decoding,
            before_step=first.step,
            after_step=last.step,
            before=None,
            after=rate.value,
            n=rate.num_tasks,
            verdict=None,
        )
    candidates = num_candidates(session, run, last=last.step, first=first.step)
    compared = compare_all_tasks((first, last), (old, new), num_candidates=candidates)
    return EvalFigures(
        decoding=last.decoding,
        before_step=first.step,
        after_step=last.step,
        before=compared.before.value,
        after=compared.after.value,
        n=compared.num_paired,
        verdict=compared.verdict.value,
    )


def conclusion_of_run(session: Session, run: Run, result: EvalFigures | None) -> Conclusion | None:
    """Return what a training run that has ended or is paused has shown; None of any other."""
    status = RunStatus(run.status)
    if run.spec["kind"] != "train" or run.origin is not None:
        return None
    if status not in TERMINAL and status is not RunStatus.PAUSED:
        return None
    return conclude(_training_figures(session, run.id), result)


def runs_without_gradient(session: Session, runs: Iterable[Run]) -> set[str]:
    """Return the ids of those training runs that have ended well without learning anything.

    The same runs of which `conclusion_of_run` says so, without their figures: for a list. The
    search in a run ends at its first step with a gradient.
    """
    ended = {
        run.id
        for run in runs
        if run.status == RunStatus.SUCCEEDED
        and run.spec.get("kind", "train") == "train"
        and run.origin is None
    }
    if not ended:
        return ended
    records, later = StepSignalRecord, aliased(StepSignalRecord)
    is_repeated = exists().where(
        later.run_id == records.run_id,
        later.step == records.step,
        later.env_key == records.env_key,
        later.attempt > records.attempt,
    )
    has_gradient = exists().where(records.run_id == Run.id, records.num_mixed > 0, ~is_repeated)
    learned = session.scalars(select(Run.id).where(Run.id.in_(ended), has_gradient))
    return ended - set(learned)


def _ends(evals: Sequence[Eval]) -> tuple[Eval, Eval]:
    """Return the first and the last evaluation under the first decoding that both have."""
    steps = (evals[0].step, evals[-1].step)
    names = [{each.decoding for each in evals if each.step == step} for step in steps]
    both = [each.decoding for each in evals if each.decoding in names[0] & names[1]]
    decoding = both[0] if both else evals[-1].decoding
    own = [each for each in evals if each.decoding == decoding]
    return own[0], own[-1]


def _training_figures(session: Session, run_id: str) -> TrainingFigures:
    """Sum up the steps; for a repeated step the newest attempt counts."""
    records = StepSignalRecord
    newest = (
        select(records)
        .where(records.run_id == run_id)
        .ext(distinct_on(records.step, records.env_key))
        .order_by(records.step, records.env_key, records.attempt.desc())
        .subquery()
    )
    steps = func.count(newest.c.step.distinct())
    sums = [func.coalesce(func.sum(newest.c[name]), 0) for name in (*SUMS, "score_sum")]
    num_steps, *numbers, score_sum = session.execute(select(steps, *sums)).one()
    figures = {name: int(number) for name, number in zip(SUMS, numbers, strict=True)}
    mean = score_sum / figures["num_graded"] if figures["num_graded"] else None
    return TrainingFigures(num_steps=num_steps, **figures, mean_score=mean)
