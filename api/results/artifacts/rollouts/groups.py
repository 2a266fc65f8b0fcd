"""Groups of rollouts: the rollouts of one task at one step, as the dashboard lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from api.results.artifacts.trajectories import TrajectoryFilters, matching
from api.tables import OutcomeRecord, Run

MAX_ROLLOUTS = 64
"""Rollouts that a listed group shows; its task's filter leads to the others."""
_KEYS = (
    OutcomeRecord.step,
    OutcomeRecord.attempt,
    OutcomeRecord.split,
    OutcomeRecord.decoding,
    OutcomeRecord.env_key,
    OutcomeRecord.task_key,
)

GroupKey = tuple[int, int, str, str, str, str]
"""Step, attempt, split, decoding, environment, task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The rollouts of a task at a step that the filters let through."""

    key: GroupKey
    num_rollouts: int
    rollouts: Sequence[OutcomeRecord]
    """In the order of their samples, at most `MAX_ROLLOUTS`."""


def list_groups(
    session: Session, run: Run, filters: TrajectoryFilters, *, offset: int, limit: int
) -> list[RolloutGroup]:
    """Return up to `limit` groups from the offset on, newest step first."""
    conditions = matching(run, filters)
    query = (
        select(*_KEYS, func.count())
        .where(*conditions)
        .group_by(*_KEYS)
        .order_by(OutcomeRecord.step.desc(), *_KEYS[1:])
        .offset(offset)
        .limit(limit)
    )
    counts: dict[GroupKey, int] = {
        (row[0], row[1], row[2], row[3], row[4], row[5]): row[6] for row in session.execute(query)
    }
    rollouts = _rollouts_of(session, run, filters, list(counts))
    return [
        RolloutGroup(key=key, num_rollouts=number, rollouts=rollouts[key])
        for key, number in counts.items()
    ]


def siblings(session: Session, outcome: OutcomeRecord) -> Sequence[OutcomeRecord]:
    """Return the rollouts of the outcome's group, itself included, by sample."""
    query = (
        select(OutcomeRecord)
        .where(
            OutcomeRecord.run_id == outcome.run_id,
            *(column == getattr(outcome, column.key) for column in _KEYS),
        )
        .order_by(OutcomeRecord.sample_index)
        .limit(MAX_ROLLOUTS)
    )
    return session.scalars(query).all()


def _rollouts_of(
    session: Session, run: Run, filters: TrajectoryFilters, keys: Sequence[GroupKey]
) -> dict[GroupKey, list[OutcomeRecord]]:
    rank = func.row_number().over(partition_by=_KEYS, order_by=OutcomeRecord.sample_index)
    ranked = (
        select(OutcomeRecord.rollout_id, rank.label("rank"))
        .where(*matching(run, filters), tuple_(*_KEYS).in_(keys))
        .subquery()
    )
    query = (
        select(OutcomeRecord)
        .join(ranked, ranked.c.rollout_id == OutcomeRecord.rollout_id)
        .where(OutcomeRecord.run_id == run.id, ranked.c.rank <= MAX_ROLLOUTS)
        .order_by(OutcomeRecord.sample_index)
    )
    rollouts: dict[GroupKey, list[OutcomeRecord]] = defaultdict(list)
    for each in session.scalars(query):
        rollouts[
            each.step, each.attempt, each.split, each.decoding, each.env_key, each.task_key
        ].append(each)
    return rollouts
