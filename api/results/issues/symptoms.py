"""The rollouts of an evaluation that show a symptom, task by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, and_, case, false, select, true
from sqlalchemy.orm import Session

from api.results.comparison.searches import read_searches
from api.results.evals.store import of_eval
from api.tables import Eval, OutcomeRecord
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.stats.trajectories.patterns.registry import PATTERNS
from hillclimb.stats.trajectories.symptoms import FAILURE
from hillclimb.stats.verdicts.issue_rule import SymptomCount

Seen = tuple[str, str, bool | None]
"""Environment, task, and whether a rollout shows the symptom; None: not known."""


def is_pattern(symptom: str) -> bool:
    """Tell whether detectors find the symptom; outcomes have the others themselves."""
    return symptom in PATTERNS


def count_symptom(
    session: Session,
    evaluation: Eval,
    symptom: str,
    *,
    version: int | None,
    env_key: str | None,
) -> list[SymptomCount]:
    """Return the counts of an evaluation's tasks; rollouts that never began are left out.

    `version` is that of the detectors, for a failure pattern.
    """
    if is_pattern(symptom):
        searches = read_searches(session, evaluation, version=version, env_key=env_key)
        return _by_task(
            (
                each.env_key,
                each.task_key,
                None if each.patterns is None else symptom in each.patterns,
            )
            for each in searches
        )
    return _by_task(_read_outcomes(session, evaluation, symptom, env_key))


def _read_outcomes(
    session: Session, evaluation: Eval, symptom: str, env_key: str | None
) -> Iterable[Seen]:
    records = OutcomeRecord
    known, shows = _conditions(symptom, evaluation.pass_threshold)
    query = (
        select(records.env_key, records.task_key, case((known, shows), else_=None))
        .where(
            *of_eval(evaluation.run_id, evaluation).where(),
            records.stop_reason != StopReason.NOT_STARTED,
        )
        .order_by(records.env_key, records.task_key, records.sample_index)
    )
    if env_key is not None:
        query = query.where(records.env_key == env_key)
    return ((env, task, seen) for env, task, seen in session.execute(query))


def _conditions(
    symptom: str, pass_threshold: float
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return when it is known whether a rollout shows the symptom, and when it does."""
    records = OutcomeRecord
    graded = records.status == OutcomeStatus.GRADED
    if symptom == FAILURE:
        return graded, and_(graded, records.score < pass_threshold)
    shows = {
        "tool_error": records.num_tool_errors > 0,
        "repeated_call": records.num_repeated_calls > 0,
        "turn_too_long": records.stop_reason == StopReason.MAX_GENERATE_LENGTH,
        "infra_error": records.status == OutcomeStatus.INFRA_ERROR,
        "ungraded": records.status == OutcomeStatus.UNGRADED,
    }
    return true(), shows.get(symptom, false())


def _by_task(rollouts: Iterable[Seen]) -> list[SymptomCount]:
    tasks: dict[tuple[str, str], list[bool | None]] = defaultdict(list)
    for env_key, task_key, seen in rollouts:
        tasks[env_key, task_key].append(seen)
    return [_count(env_key, task_key, seen) for (env_key, task_key), seen in tasks.items()]


def _count(env_key: str, task_key: str, seen: Sequence[bool | None]) -> SymptomCount:
    known = [each for each in seen if each is not None]
    return SymptomCount(
        env_key=env_key,
        task_key=task_key,
        num_known=len(known),
        num_showing=sum(known),
        num_unknown=len(seen) - len(known),
        first_shows=known[0] if known else None,
    )
