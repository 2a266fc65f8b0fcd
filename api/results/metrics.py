"""Metric series of a run, selected by name patterns; the highest attempt per step counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import select
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
    stored = session.scalars(select(Metric.name).where(Metric.run_id == run_id).distinct()).all()
    names = [n for n in stored if any(fnmatchcase(n, pattern) for pattern in filters.names)]
    query = (
        select(Metric)
        .where(Metric.run_id == run_id, Metric.name.in_(names))
        .ext(distinct_on(Metric.name, Metric.decoding, Metric.step))
        .order_by(Metric.name, Metric.decoding, Metric.step, Metric.attempt.desc())
    )
    if filters.from_step is not None:
        query = query.where(Metric.step >= filters.from_step)
    if filters.to_step is not None:
        query = query.where(Metric.step <= filters.to_step)
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for metric in session.scalars(query):
        points = series.setdefault((metric.name, metric.decoding), [])
        points.append({"step": metric.step, "attempt": metric.attempt, "value": metric.value})
    return [
        {"object": "metric", "name": name, "decoding": decoding, "points": points}
        for (name, decoding), points in series.items()
    ]
