"""Contents of the metrics page: the names of all series, and when each step ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, select
from sqlalchemy.orm import Session

from api.results.metrics import stored_names
from api.tables import Run, RunEvent

MAX_STEPS = 20_000
"""Steps whose time the page embeds; the last ones of a longer run."""
TIMED = ("step.completed", "eval.completed")
FIRST_CHOICE = ("reward/avg_raw_reward", "eval/all/pass_at_1")
"""Drawn where the address names no series."""


def metrics_contents(session: Session, run: Run) -> dict[str, Any]:
    """Return what the page's script starts from; it reads the points from the API."""
    names = list(stored_names(session, run.id))
    return {
        "num_names": len(names),
        "state": {
            "run": {"id": run.id, "ended": run.ended_at is not None},
            "names": names,
            "env_keys": list(run.spec["data"]["env_keys"]),
            "first": [name for name in FIRST_CHOICE if name in names] or names[:2],
            "clock": _clock(session, run),
        },
    }


def _clock(session: Session, run: Run) -> list[tuple[int, float]]:
    """Return each step with the seconds from the run's start to its end; the last attempt counts.

    Paused time and time between attempts are part of it.
    """
    step = RunEvent.data["step"].astext.cast(Integer)
    query = (
        select(step, RunEvent.at)
        .where(RunEvent.run_id == run.id, RunEvent.type.in_(TIMED))
        .order_by(RunEvent.seq.desc())
        .limit(MAX_STEPS)
    )
    start = run.started_at or run.created_at
    seconds: dict[int, float] = {}
    for number, at in session.execute(query):
        seconds.setdefault(number, round((at - start).total_seconds(), 1))
    return sorted(seconds.items())
