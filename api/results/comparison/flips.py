"""Tasks that one evaluation passes and the other does not, with a rollout of each side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from api.results.evals.store import Records, of_eval, outcomes_of
from api.tables import Eval
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.stats.pass_rate import TaskCount

MAX_FLIPS = 200
"""Tasks listed per direction, those that changed most first."""


def flips(
    session: Session,
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    verifier: str | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the tasks gained and lost from the first evaluation to the second."""
    old = {(c.env_key, c.task_key): _share(c) for c in counts[0] if c.num_graded}
    changes = [
        (_share(c) - old[c.env_key, c.task_key], c.env_key, c.task_key)
        for c in counts[1]
        if c.num_graded and (c.env_key, c.task_key) in old
    ]
    gained = sorted((c for c in changes if c[0] > 0), key=lambda c: (-c[0], *c[1:]))[:MAX_FLIPS]
    lost = sorted(c for c in changes if c[0] < 0)[:MAX_FLIPS]
    return {
        "gained": _with_rollouts(session, evals, gained, (False, True), verifier),
        "lost": _with_rollouts(session, evals, lost, (True, False), verifier),
    }


def _share(count: TaskCount) -> float:
    return count.num_passed / count.num_graded


def _with_rollouts(
    session: Session,
    evals: tuple[Eval, Eval],
    changes: Sequence[tuple[float, str, str]],
    has_passed: tuple[bool, bool],
    verifier: str | None,
) -> list[dict[str, Any]]:
    tasks = [task for _, _, task in changes]
    first, second = (
        _rollouts(session, evaluation, tasks, outcomes_of(verifier), has_passed=passed)
        for evaluation, passed in zip(evals, has_passed, strict=True)
    )
    return [
        {
            "env_key": env,
            "task_key": task,
            "change": change,
            "a_rollout": first.get((env, task)),
            "b_rollout": second.get((env, task)),
        }
        for change, env, task in changes
    ]


def _rollouts(
    session: Session,
    evaluation: Eval,
    tasks: Sequence[str],
    records: Records,
    *,
    has_passed: bool,
) -> dict[tuple[str, str], str]:
    """Return the first rollout of each task that passed, or that failed."""
    threshold = evaluation.pass_threshold
    passes = records.score >= threshold if has_passed else records.score < threshold
    query = (
        select(records.env_key, records.task_key, records.rollout_id)
        .where(
            *of_eval(evaluation.run_id, evaluation).where(records),
            records.status == OutcomeStatus.GRADED,
            passes,
            records.task_key.in_(tasks),
        )
        .ext(distinct_on(records.env_key, records.task_key))
        .order_by(records.env_key, records.task_key, records.sample_index)
    )
    return {(env, task): rollout for env, task, rollout in session.execute(query)}
