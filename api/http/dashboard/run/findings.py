"""Results of a run that trains nothing, as plain values for its page."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from api.results.preflight import probe, validation
from api.results.preflight.newest_event import newest_event
from api.results.preflight.prompts import RENDERED
from api.tables import Run
from hillclimb.protocol.validation import TaskVerdict
from hillclimb.stats.probe_report import ProbeVerdict

EVENTS = {"probe": probe.TYPE, "validate": validation.TYPE, "preview": RENDERED}
"""Type of the event that reports the results of a run, by its kind."""
TONES = {
    ProbeVerdict.INFORMATIVE: "good",
    ProbeVerdict.SATURATED: "warn",
    ProbeVerdict.INCONCLUSIVE: "warn",
    ProbeVerdict.HOPELESS: "bad",
    ProbeVerdict.UNHEALTHY: "bad",
}
VERDICTS = tuple(verdict.value for verdict in TaskVerdict)


def results_contents(session: Session, run: Run) -> dict[str, Any] | None:
    """Return the results of a probe, validation or preview; null for runs of other kinds.

    `data` is null until the run has reported.
    """
    kind = run.spec.get("kind", "train")
    if kind not in EVENTS:
        return None
    event = newest_event(session, run.id, EVENTS[kind])
    content: dict[str, Any] = {"kind": kind, "data": None, "verdicts": VERDICTS, "tones": TONES}
    if event is not None:
        content["data"] = event.data["summary"] if kind == "validate" else event.data
        content["complete"] = event.data.get("complete", True)
        content["environments"] = sorted(content["data"]["environments"].items())
    return content
