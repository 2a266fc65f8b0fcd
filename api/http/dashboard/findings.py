"""What a run that trains nothing found, as plain values for the run page."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from api.evals import probe, validation
from api.evals.newest import newest_event
from api.runs.prompts import RENDERED
from api.tables import Run
from trainer.contract.probereport import ProbeVerdict
from trainer.contract.validation import TaskVerdict

EVENTS = {"probe": probe.TYPE, "validate": validation.TYPE, "preview": RENDERED}
"""The event that reports the whole of a run, by its kind."""
TONES = {
    ProbeVerdict.INFORMATIVE: "good",
    ProbeVerdict.SATURATED: "warn",
    ProbeVerdict.INCONCLUSIVE: "warn",
    ProbeVerdict.HOPELESS: "bad",
    ProbeVerdict.UNHEALTHY: "bad",
}
VERDICTS = tuple(verdict.value for verdict in TaskVerdict)


def found_contents(session: Session, run: Run) -> dict[str, Any] | None:
    """Return what the run found, `kind` being its kind; null for runs of other kinds.

    `data` is null until it has reported.
    """
    kind = run.spec.get("kind", "train")
    if kind not in EVENTS:
        return None
    event = newest_event(session, run.id, EVENTS[kind])
    found: dict[str, Any] = {"kind": kind, "data": None, "verdicts": VERDICTS, "tones": TONES}
    if event is not None:
        found["data"] = event.data["summary"] if kind == "validate" else event.data
        found["complete"] = event.data.get("complete", True)
        found["environments"] = sorted(found["data"]["environments"].items())
    return found
