"""The signal report of a run, from the counts that ingest stores per step and environment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from api.tables import Metric, StepSignalRecord
from hillclimb.stats.signal_report import EnvSignal, StepSignal, report_signal

CLIP_RATIO = "policy/ppo_clip_ratio"
TRAIN = "train"
FIELDS = tuple(StepSignal.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFilters:
    """Steps and environments of a report."""

    window: int | None = None
    """Only the newest so many steps; null: all."""
    env_key: str | None = None
    """Only this environment; null: all."""


def build_signal(session: Session, run_id: str, filters: SignalFilters) -> dict[str, Any]:
    """Return the report per environment and over all, with the counts of each step."""
    last = session.scalar(
        select(func.max(StepSignalRecord.step)).where(StepSignalRecord.run_id == run_id)
    )
    first = 1 if filters.window is None or last is None else max(1, last - filters.window + 1)
    steps = read_steps(session, run_id, first, filters.env_key)
    clip_ratio = _clip_ratio(session, run_id, first)
    by_env: dict[str, list[StepSignal]] = defaultdict(list)
    for each in steps:
        by_env[each.env_key].append(each)
    return {
        "object": "signal",
        "run_id": run_id,
        "first_step": first if steps else None,
        "last_step": last if steps else None,
        "clip_ratio": clip_ratio,
        "all": _facts(report_signal(steps, clip_ratio=clip_ratio)),
        "environments": {
            key: _facts(report_signal(group, clip_ratio=clip_ratio))
            | {"steps": [_point(each) for each in group]}
            for key, group in sorted(by_env.items())
        },
    }


def read_steps(
    session: Session, run_id: str, first: int = 1, env_key: str | None = None
) -> list[StepSignal]:
    """Return the counts by step; for a repeated step the newest attempt counts."""
    records = StepSignalRecord
    query = (
        # Columns: a run has thousands of rows, and each object of the ORM costs 20 microseconds.
        select(*(getattr(records, name) for name in FIELDS))
        .where(records.run_id == run_id, records.step >= first)
        .ext(distinct_on(records.step, records.env_key))
        .order_by(records.step, records.env_key, records.attempt.desc())
    )
    if env_key is not None:
        query = query.where(records.env_key == env_key)
    return [StepSignal(**dict(zip(FIELDS, row, strict=True))) for row in session.execute(query)]


def _clip_ratio(session: Session, run_id: str, first: int) -> float | None:
    """Return the mean over the steps of the window; None where no update has reported it."""
    newest = (
        select(Metric.value)
        .where(
            Metric.run_id == run_id,
            Metric.name == CLIP_RATIO,
            Metric.decoding == TRAIN,
            Metric.step >= first,
        )
        .ext(distinct_on(Metric.step))
        .order_by(Metric.step, Metric.attempt.desc())
        .subquery()
    )
    return session.scalar(select(func.avg(newest.c.value)))


def _facts(signal: EnvSignal) -> dict[str, Any]:
    return asdict(signal) | {"reading": signal.reading.value}


def _point(counts: StepSignal) -> dict[str, Any]:
    has_groups = counts.num_groups > 0
    return {
        "step": counts.step,
        "num_groups": counts.num_groups,
        "signal_ratio": counts.num_mixed / counts.num_groups if has_groups else None,
        "variance_per_prompt": counts.variance_sum / counts.num_groups if has_groups else None,
    }
