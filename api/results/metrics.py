"""Metric series of a run, selected by name patterns; the highest attempt per step counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from api.tables import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFilters:
    """Filters of metric points; steps are inclusive, null is open."""

    names: Sequence[str] = ("*",)
    """Patterns with `*`, `?` and `[...]`; selects names that match any of them."""
    from_step: int | None = None
    to_step: int | None = None


def read_metrics(session: Session, run_id: str, filters: MetricFilters) -> list[dict[str, Any]]:
    """Return one series per name and decoding, `points` being `{step, attempt, value}` by step."""
    stored = stored_names(session, run_id)
    names = [n for n in stored if any(fnmatchcase(n, pattern) for pattern in filters.names)]
    query = (
        select(Metric.name, Metric.decoding, Metric.step, Metric.attempt, Metric.value)
        .where(Metric.run_id == run_id, Metric.name.in_(names))
        .ext(distinct_on(Metric.name, Metric.decoding, Metric.step))
        .order_by(Metric.name, Metric.decoding, Metric.step, Metric.attempt.desc())
    )
    if filters.from_step is not None:
        query = query.where(Metric.step >= filters.from_step)
    if filters.to_step is not None:
        query = query.where(Metric.step <= filters.to_step)
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, decoding, step, attempt, value in session.execute(query):
        points = series.setdefault((name, decoding), [])
        points.append({"step": step, "attempt": attempt, "value": value})
    return [
        {"object": "metric", "name": name, "decoding": decoding, "points": points}
        for (name, decoding), points in series.items()
    ]


def stored_names(session: Session, run_id: str) -> Sequence[str]:
    """Return the run's names, each found in the primary key's index as the next after the last.

    `SELECT DISTINCT` would read every point: a run has hundreds of names and hundreds of thousands
    of points.
    """

    def smallest(*conditions: ColumnElement[bool]) -> ScalarSelect[Any]:
        query = select(func.min(Metric.name)).where(Metric.run_id == run_id, *conditions)
        return query.scalar_subquery()

    names = select(smallest().label("name")).cte("names", recursive=True)
    following = select(smallest(Metric.name > names.c.name)).where(names.c.name.is_not(None))
    names = names.union_all(following)
    return session.scalars(select(names.c.name).where(names.c.name.is_not(None))).all()
