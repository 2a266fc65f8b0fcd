"""Metric series of a run, selected by name patterns; the highest attempt per step counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Text, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on
from sqlalchemy.orm import Session

from api.results.errors import TooManyPoints
from api.tables import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFilters:
    """Filters of metric points; steps are inclusive, null is open."""

    names: Sequence[str] = ("*",)
    """Patterns with `*`, `?` and `[...]`; selects names that match any of them."""
    from_step: int | None = None
    to_step: int | None = None
    max_points: int | None = None
    """Points of a series; null is all of them."""


MAX_POINTS = 500_000
"""Points of one answer: each is an object in memory before it is sent."""
_DECODINGS = text(
    """
    WITH RECURSIVE series(name, decoding) AS (
        SELECT each.name, next.decoding FROM unnest(:names) AS each(name), LATERAL (
            SELECT min(decoding) AS decoding FROM metrics
            WHERE run_id = :run_id AND metrics.name = each.name
        ) AS next
        UNION ALL
        SELECT series.name, next.decoding FROM series, LATERAL (
            SELECT min(decoding) AS decoding FROM metrics
            WHERE run_id = :run_id AND metrics.name = series.name
                AND metrics.decoding > series.decoding
        ) AS next
        WHERE series.decoding IS NOT NULL
    )
    SELECT name, decoding FROM series WHERE decoding IS NOT NULL ORDER BY name, decoding
    """
).bindparams(bindparam("names", type_=ARRAY(Text)))
"""The decodings of each name, each found in the index as the next after the last."""
_ENDS = """
    unnest(:names, :decodings) AS series(name, decoding),
    LATERAL (
        SELECT step::bigint AS first FROM metrics
        WHERE run_id = :run_id AND name = series.name AND decoding = series.decoding
            AND step >= :from_step
        ORDER BY step LIMIT 1
    ) AS oldest,
    LATERAL (
        SELECT step::bigint AS last FROM metrics
        WHERE run_id = :run_id AND name = series.name AND decoding = series.decoding
            AND step <= :to_step
        ORDER BY step DESC LIMIT 1
    ) AS newest
"""
"""The first and the last step of each series, two looks into the index."""
_NUM_THINNED = text(
    f"""
    SELECT coalesce(sum(least(:max_points, last - first + 1)), 0) FROM {_ENDS} WHERE first <= last
    """
).bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("decodings", type_=ARRAY(Text)))
"""How many points at most the series have in equal parts: no more than steps."""
_THINNED = text(
    f"""
    SELECT series.name, series.decoding, point.step, point.attempt, point.value FROM {_ENDS},
    LATERAL (SELECT least(:max_points - 1, greatest(last - first, 1)) AS parts) AS part,
    generate_series(0, parts) AS bucket,
    LATERAL (
        SELECT step, attempt, value FROM metrics
        WHERE run_id = :run_id AND name = series.name AND decoding = series.decoding
            AND step <= first + (last - first) * bucket / parts
            AND step >= CASE bucket WHEN 0 THEN first
                ELSE first + (last - first) * (bucket - 1) / parts + 1
                END
        ORDER BY step DESC, attempt DESC LIMIT 1
    ) AS point
    WHERE first <= last
    ORDER BY series.name, series.decoding, point.step
    """
).bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("decodings", type_=ARRAY(Text)))
"""The last point of each of `max_points` equal parts of the steps, one look into the index each;
the first part is the first step alone. An average would read every point: of 20 series of 100,000
steps, two million."""
LARGEST_STEP = 2**31 - 1


def read_metrics(session: Session, run_id: str, filters: MetricFilters) -> list[dict[str, Any]]:
    """Return one series per name and decoding, `points` being `{step, attempt, value}` by step.

    With `max_points` a series of more steps has the last point of each of so many equal parts, and
    its first one: points that are stored, with nothing of what lies between them.

    Raises:
        TooManyPoints: these are more than one answer has.
    """
    stored = stored_names(session, run_id)
    names = [n for n in stored if any(fnmatchcase(n, pattern) for pattern in filters.names)]
    read = _all_points if filters.max_points is None else _thinned_points
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    rows = read(session, run_id, names, filters)
    for number, (name, decoding, step, attempt, value) in enumerate(rows):
        _refuse_above(number + 1)
        points = series.setdefault((name, decoding), [])
        points.append({"step": step, "attempt": attempt, "value": value})
    return [
        {"object": "metric", "name": name, "decoding": decoding, "points": points}
        for (name, decoding), points in series.items()
    ]


def _refuse_above(num_points: int) -> None:
    if num_points > MAX_POINTS:
        raise TooManyPoints(
            f"these series have over {MAX_POINTS:,} points: send `max_points`, a smaller one, fewer"
            " names, or a range of steps"
        )


def _thinned_points(
    session: Session, run_id: str, names: Sequence[str], filters: MetricFilters
) -> Iterable[Any]:
    series = session.execute(_DECODINGS, {"run_id": run_id, "names": list(names)}).all()
    values = {
        "run_id": run_id,
        "names": [name for name, _ in series],
        "decodings": [decoding for _, decoding in series],
        "from_step": filters.from_step or 0,
        "to_step": LARGEST_STEP if filters.to_step is None else filters.to_step,
        "max_points": filters.max_points,
    }
    _refuse_above(int(session.execute(_NUM_THINNED, values).scalar_one()))
    return session.execute(_THINNED, values)


def _all_points(
    session: Session, run_id: str, names: Sequence[str], filters: MetricFilters
) -> Iterable[Any]:
    query = (
        select(Metric.name, Metric.decoding, Metric.step, Metric.attempt, Metric.value)
        .where(Metric.run_id == run_id, Metric.name.in_(names))
        .ext(distinct_on(Metric.name, Metric.decoding, Metric.step))
        .order_by(Metric.name, Metric.decoding, Metric.step, Metric.attempt.desc())
        .limit(MAX_POINTS + 1)
    )
    if filters.from_step is not None:
        query = query.where(Metric.step >= filters.from_step)
    if filters.to_step is not None:
        query = query.where(Metric.step <= filters.to_step)
    return session.execute(query)


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
