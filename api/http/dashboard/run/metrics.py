"""Contents of the metrics page: the names of all series, and where each step lies on each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, select
from sqlalchemy.orm import Session

from api.results.ledger import TRAIN, read_ledger
from api.results.metrics import stored_names
from api.tables import Run, RunEvent

MAX_STEPS = 20_000
"""Steps whose time the page embeds; the last ones of a longer run."""
MAX_BESIDE = 4
"""Other runs in the same charts."""
NUM_OFFERED = 50
"""Newest runs that the page offers to draw beside this one."""
TIMED = ("step.completed", "eval.completed")
FIRST_CHOICE = ("reward/avg_raw_reward", "eval/all/pass_at_1")
"""Drawn where the address names no series."""


def metrics_contents(session: Session, run: Run, beside: Sequence[str]) -> dict[str, Any]:
    """Return what the page's script starts from; it reads the points from the API.

    `beside` are ids of runs to draw in the same charts; those that the project lacks are named.
    """
    names = list(stored_names(session, run.id))
    others = _runs(session, run, beside)
    missing = [each for each in beside if each not in {other.id for other in others}]
    return {
        "num_names": len(names),
        "beside": others,
        "missing": missing,
        "offered": [each for each in _newest(session, run) if each not in others],
        "state": {
            "run": {"id": run.id, "ended": run.ended_at is not None},
            "names": names,
            "env_keys": list(run.spec["data"]["env_keys"]),
            "first": [name for name in FIRST_CHOICE if name in names] or names[:2],
            "runs": [_axes(session, each) for each in (run, *others)],
        },
    }


def _runs(session: Session, run: Run, ids: Sequence[str]) -> list[Run]:
    """Return the runs of the same project with these ids, in their order."""
    query = select(Run).where(Run.project_id == run.project_id, Run.id.in_(ids), Run.id != run.id)
    rows = {each.id: each for each in session.scalars(query)}
    return [rows[each] for each in dict.fromkeys(ids) if each in rows][:MAX_BESIDE]


def _newest(session: Session, run: Run) -> list[Run]:
    """Return the newest other runs that have completed a step."""
    query = (
        select(Run)
        .where(Run.project_id == run.project_id, Run.id != run.id, Run.progress_step > 0)
        .order_by(Run.created_at.desc(), Run.id.desc())
        .limit(NUM_OFFERED)
    )
    return list(session.scalars(query))


def _axes(session: Session, run: Run) -> dict[str, Any]:
    """Return a run with where its steps lie on the axes of time and compute."""
    return {
        "id": run.id,
        "name": run.name,
        "clock": _clock(session, run),
        "tokens": _tokens(session, run),
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


def _tokens(session: Session, run: Run) -> list[tuple[int, int]]:
    """Return each step with the tokens that training had computed by its end.

    Of engines, rejected rollouts and repeated steps included; empty where they were not counted.
    """
    ledger = read_ledger(session, run.id)
    spent, by_step = 0, {0: 0}
    for row in ledger.rows:
        if row.kind == TRAIN:
            spent += row.spent.num_tokens
            by_step[row.step] = spent
    return sorted(by_step.items())[-MAX_STEPS:] if ledger.rows else []
