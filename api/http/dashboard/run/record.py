"""Contents of the pages of a run's record: checkpoints, configuration, attempts with guards."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.results.artifacts.checkpoints import checkpoint_facts, list_checkpoints
from api.results.comparison.config_diff import config_diff
from api.runs import store
from api.runs.end_reasons import REASONS
from api.runs.errors import RunNotFound
from api.scheduling.limits.guards.report import build_guards
from api.tables import Attempt, Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import start_line

QUALIFICATION_TONES = {"qualified": "good", "refused": "bad"}
GUARD_TONES = {"tripped": "bad", "armed": "good"}
QUALIFICATIONS = {
    "qualified": "a fresh process loaded it and took an update",
    "refused": "a fresh process could not load it and take an update",
    "untried": "no process has loaded it yet",
}


def checkpoints_contents(session: Session, run: Run) -> dict[str, Any]:
    """Return the checkpoints that still exist, highest step first."""
    rows = []
    for each in list_checkpoints(session, run.id):
        facts = checkpoint_facts(each)
        word = facts["qualification"]
        rows.append(
            facts
            | {
                "size": f"{each.size_bytes / 2**20:,.1f} MiB",
                "tone": QUALIFICATION_TONES.get(word, ""),
                "meaning": QUALIFICATIONS.get(word, ""),
            }
        )
    return {"checkpoints": rows}


def config_contents(session: Session, run: Run) -> dict[str, Any]:
    """Return the resolved spec, and its difference to the spec of the run it descends from."""
    parent = _parent(session, run)
    differences = [] if parent is None else config_diff(parent.spec, run.spec)
    return {
        "config": json.dumps(run.spec, indent=2, ensure_ascii=False),
        "parent": parent,
        "differences": [
            {"key": dotted(each["pointer"]), "a": _value(each["a"]), "b": _value(each["b"])}
            for each in differences
        ],
    }


def attempts_contents(session: Session, run: Run, *, now: datetime) -> dict[str, Any]:
    """Return the attempts with what ended each, and the guards with their measurements."""
    guards = build_guards(session, run, now=now).model_dump(mode="json")
    for guard in guards["guards"]:
        guard["tone"] = GUARD_TONES.get(guard["status"], "")
    starts = _starts(session, run.id)
    return {
        "attempts": [
            _attempt(each, now=now) | {"phases": starts.get(each.number, "")}
            for each in store.list_attempts(session, run.id)
        ],
        "guards": guards["guards"],
        "trips": guards["trips"],
    }


def _starts(session: Session, run_id: str) -> dict[int, str]:
    """Return by attempt how long each phase of its trainer's start took."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == "trainer.started")
    return {
        event.attempt or 0: start_line(
            {each["phase"]: each["seconds"] for each in event.data.get("startup", ())}
        )
        for event in session.scalars(query)
    }


def dotted(pointer: str) -> str:
    """Return a JSON pointer as a dotted key."""
    parts = pointer.removeprefix("/").split("/")
    return ".".join(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _attempt(attempt: Attempt, *, now: datetime) -> dict[str, Any]:
    wording = ""
    if attempt.end_code is not None:
        wording = REASONS[ReasonCode(attempt.end_code)].wording
    started = attempt.claimed_at or attempt.scheduled_at
    return {
        "number": attempt.number,
        "state": attempt.state,
        "from_step": attempt.from_step,
        "scheduled_at": attempt.scheduled_at,
        "waited": _lasted(attempt.scheduled_at, attempt.claimed_at or now),
        "starting": _lasted(started, attempt.started_at or attempt.ended_at or now),
        "running": _lasted(attempt.started_at, attempt.ended_at or now),
        "why": attempt.end_message or wording,
        "wording": wording,
        "end_code": attempt.end_code,
        "exit_code": attempt.exit_code,
    }


def _lasted(start: datetime | None, end: datetime) -> str:
    if start is None:
        return "–"
    lasted: timedelta = max(end - start, timedelta(0))
    minutes, seconds = divmod(int(lasted.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _parent(session: Session, run: Run) -> Run | None:
    lineage = run.spec.get("lineage") or {}
    named = lineage.get("forked_from") or lineage.get("resumed_from")
    if named is None:
        return None
    try:
        return store.get_run(session, run.project_id, named["run_id"])
    except RunNotFound:
        return None


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
