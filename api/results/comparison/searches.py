"""Failure patterns of stored rollouts by one version of the detectors, never by several.

An outcome has the patterns of the trainer's own search; searches of stored rollouts by other
detectors stand beside it (`api.results.rescoring`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, case, func, select, union
from sqlalchemy.orm import Session

from api.results.errors import MixedDetectors
from api.results.evals.store import of_eval
from api.tables import Eval, OutcomeRecord, PatternSearch
from hillclimb.protocol.outcomes import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedRollout:
    """A rollout that was started; `patterns` is None if this version did not search it."""

    env_key: str
    task_key: str
    rollout_id: str
    patterns: frozenset[str] | None


def choose_version(
    session: Session, evals: Sequence[Eval], *, env_key: str | None = None
) -> int | None:
    """Return the newest version that searched every searched rollout; None if none was searched.

    Raises:
        MixedDetectors: each version lacks rollouts that another one searched.
    """
    numbers = [_count_searched(session, each, env_key) for each in evals]
    totals = [number.pop(None, 0) for number in numbers]
    versions = sorted({version for number in numbers for version in number if version is not None})
    complete = [
        version
        for version in versions
        if all(number[version] == total for number, total in zip(numbers, totals, strict=True))
    ]
    if complete:
        return complete[-1]
    if not versions:
        return None
    names = " and ".join(str(version) for version in versions)
    runs = sorted({each.run_id for each in evals})
    commands = "; ".join(f"hillclimb rescore {run_id} --patterns" for run_id in runs)
    raise MixedDetectors(
        f"Versions {names} of the detectors searched these rollouts, and none of them all: their"
        f" findings are not compared. Search them by the present one ({commands}), or name a"
        " version (`version`)"
    )


def read_searches(
    session: Session, evaluation: Eval, *, version: int | None, env_key: str | None = None
) -> Iterator[SearchedRollout]:
    """Yield the rollouts of an evaluation that were started, by environment, task and sample."""
    old, new = OutcomeRecord, PatternSearch
    names = case((old.patterns_version == version, old.patterns), else_=new.patterns)
    query = (
        select(old.env_key, old.task_key, old.rollout_id, names)
        .outerjoin(
            new,
            and_(
                new.run_id == old.run_id,
                new.rollout_id == old.rollout_id,
                new.version == version,
            ),
        )
        .where(
            *of_eval(evaluation.run_id, evaluation).where(),
            old.stop_reason != StopReason.NOT_STARTED,
        )
        .order_by(old.env_key, old.task_key, old.sample_index)
    )
    if env_key is not None:
        query = query.where(old.env_key == env_key)
    for env, task, rollout_id, patterns in session.execute(query):
        yield SearchedRollout(
            env_key=env,
            task_key=task,
            rollout_id=rollout_id,
            patterns=None if patterns is None else frozenset(patterns),
        )


def _count_searched(session: Session, evaluation: Eval, env_key: str | None) -> Counter[int | None]:
    """Return the numbers of rollouts that each version searched, and any under None."""
    old, new = OutcomeRecord, PatternSearch
    place = [*of_eval(evaluation.run_id, evaluation).where()]
    if env_key is not None:
        place.append(old.env_key == env_key)
    native = select(old.rollout_id, old.patterns_version.label("version")).where(
        *place, old.patterns_version.is_not(None)
    )
    later = (
        select(old.rollout_id, new.version)
        .join(new, (new.run_id == old.run_id) & (new.rollout_id == old.rollout_id))
        .where(*place)
    )
    searches = union(native, later).subquery()
    query = select(searches.c.version, func.count()).group_by(searches.c.version)
    numbers: Counter[int | None] = Counter()
    for version, number in session.execute(query):
        numbers[version] = number
    numbers[None] = session.scalar(select(func.count(searches.c.rollout_id.distinct()))) or 0
    return numbers
