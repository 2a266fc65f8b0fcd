"""Results of a probe: facts of its event, and figures recomputed from stored outcomes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.results.errors import NoSuchProbe
from api.results.evals.store import OutcomeBatch, count_batch
from api.results.preflight.newest_event import newest_event
from api.tables import OutcomeRecord, Run
from hillclimb.protocol.events import ProbeCompleted
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.stats.probe_report import Begun, report_facts, report_probe

TYPE: str = ProbeCompleted.model_fields["type"].default
DECODING = "probe"
FACTS = (
    "complete", "n_samples_per_prompt", "group_size", "pass_threshold", "temperatures",
    "duration_s",
)  # fmt: skip
"""Keys that are copied from the event unchanged."""


def read_probe(session: Session, run: Run) -> dict[str, Any]:
    """Return the newest attempt's probe.

    `environments` has per key the verdict, the shares of groups with signal and `health`.

    Raises:
        NoSuchProbe: the run has not reported one.
    """
    event = newest_event(session, run.id, TYPE)
    if event is None:
        kind = run.spec.get("kind", "train")
        hint = "" if kind == "probe" else f": it is of kind {kind}, submit one of kind probe"
        raise NoSuchProbe(f"Run {run.id} has reported no probe{hint}.")
    data: dict[str, Any] = event.data
    batch = OutcomeBatch(
        run_id=run.id,
        split="train",
        decoding=DECODING,
        step=data["step"],
        attempt=event.attempt or 0,
        pass_threshold=data["pass_threshold"],
    )
    facts = report_facts(
        report_probe(
            count_batch(session, batch), _begun(session, batch), group_size=data["group_size"]
        )
    )
    for key, environment in facts["environments"].items():
        environment["health"] = data["health"].get(key)
    return {
        "object": "probe",
        "run_id": run.id,
        "step": data["step"],
        "attempt": event.attempt,
        "created_at": event.at,
        **{name: data[name] for name in FACTS},
        **facts,
    }


def _begun(session: Session, batch: OutcomeBatch) -> dict[str, Begun]:
    """Count rollouts per environment, as `probereport.report_rows` does, in the database."""
    begun = OutcomeRecord.stop_reason != StopReason.NOT_STARTED
    troubled = (OutcomeRecord.num_infra_retries > 0) | (
        OutcomeRecord.status != OutcomeStatus.GRADED
    )
    query = (
        select(
            OutcomeRecord.env_key,
            func.count().filter(begun),
            func.count().filter(begun & troubled),
        )
        .where(*batch.where())
        .group_by(OutcomeRecord.env_key)
    )
    return {
        key: Begun(num_begun=num_begun, num_troubled=num_troubled)
        for key, num_begun, num_troubled in session.execute(query)
    }
