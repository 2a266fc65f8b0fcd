"""The figures of a run in a list: pass@1 of its first and last evaluation, and the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Float, Integer, select
from sqlalchemy.orm import Session

from api.results.evals.report import judge_all_tasks, num_candidates
from api.results.evals.store import count_outcomes, list_evals
from api.tables import Eval, Run, RunEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """pass@1 over all environments under the first decoding of the run's spec."""

    decoding: str
    before: float | None
    """Of the first evaluation, in [0, 1]; null if there is only one, or it has no grades."""
    after: float | None
    """Of the last evaluation."""
    num_graded: int
    """Graded rollouts of the last evaluation."""


def headlines(session: Session, runs: Iterable[Run]) -> dict[str, Headline]:
    """Return the headline of each run that has an evaluation, by its id.

    The figures are those of the events: the service computed them from the outcomes at ingest.
    """
    decodings = {run.id: _first_decoding(run) for run in runs}
    data = RunEvent.data
    query = select(
        RunEvent.run_id,
        data["step"].astext.cast(Integer),
        RunEvent.attempt,
        data["decoding"].astext,
        data["all"]["pass_at_1"].astext.cast(Float),
        data["all"]["n"].astext.cast(Integer),
    ).where(RunEvent.run_id.in_(decodings), RunEvent.type == "eval.completed")
    evaluations: dict[str, dict[int, tuple[int, float | None, int]]] = defaultdict(dict)
    for run_id, step, attempt, decoding, value, graded in session.execute(query):
        if decoding != decodings[run_id]:
            continue
        known = evaluations[run_id].get(step)
        if known is None or known[0] <= (attempt or 0):
            evaluations[run_id][step] = (attempt or 0, value, graded or 0)
    return {
        run_id: Headline(
            decoding=decodings[run_id],
            before=steps[min(steps)][1] if len(steps) > 1 else None,
            after=steps[max(steps)][1],
            num_graded=steps[max(steps)][2],
        )
        for run_id, steps in evaluations.items()
    }


def verdict_of(session: Session, run: Run) -> str | None:
    """Return the verdict over all tasks between the run's first and last evaluation.

    Null where it has fewer than two under the first decoding of its spec.
    """
    evals = [each for each in list_evals(session, run.id) if each.decoding == _first_decoding(run)]
    if len({each.step for each in evals}) < 2:
        return None
    pair = _ends(evals)
    counts = count_outcomes(session, run.id, pair)
    first, last = pair
    candidates = num_candidates(session, run, last=last.step, first=first.step)
    sides = (counts[first.step, first.decoding], counts[last.step, last.decoding])
    return judge_all_tasks((first, last), sides, num_candidates=candidates).value


def _ends(evals: Sequence[Eval]) -> tuple[Eval, Eval]:
    return min(evals, key=lambda each: each.step), max(evals, key=lambda each: each.step)


def _first_decoding(run: Run) -> str:
    decodings: Sequence[Mapping[str, str]] = run.spec["eval"]["decodings"]
    return decodings[0]["name"] if decodings else ""
