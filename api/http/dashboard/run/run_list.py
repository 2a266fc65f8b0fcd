"""Contents of the list of runs as plain values for its templates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.results.evals.conclusion import runs_without_gradient
from api.results.evals.headlines import Headline, headlines
from api.runs.status import RunStatus
from api.tables import Run

KINDS = ("train", "eval", "probe", "validate", "preview")
VERDICT_TONES = {
    "improved": "good",
    "regressed": "bad",
    "failing": "bad",
    "inconclusive": "warn",
}


def list_rows(session: Session, runs: Sequence[Run], *, now: datetime) -> list[dict[str, Any]]:
    """Return runs as rows of the list."""
    by_run = headlines(session, runs)
    unlearned = runs_without_gradient(session, runs)
    return [
        _row(run, by_run.get(run.id), now=now) | {"has_learned": run.id not in unlearned}
        for run in runs
    ]


def _row(run: Run, headline: Headline | None, *, now: datetime) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "kind": run.spec.get("kind", "train"),
        "model": str(run.spec["model"]["source"]),
        "tags": sorted(run.tags),
        "status": run.status,
        "step": run.progress_step,
        "total": run.progress_total,
        "created_at": run.created_at,
        "duration": _duration(run, now),
        "headline": headline,
        "is_moving": run.ended_at is None and run.status != RunStatus.PAUSED,
    }


def _duration(run: Run, now: datetime) -> str:
    """Return the time from the first start of its trainer to the end, or until now, as the CLI."""
    if run.started_at is None:
        return "–"
    seconds = max(0, int(((run.ended_at or now) - run.started_at).total_seconds()))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"
