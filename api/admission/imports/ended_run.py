"""The row and the events of an imported run: what its trainer would have sent, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from api.admission.imports.adopt import RunKey
from api.results.derive import derive, to_draft
from api.runs.journal import Draft, append
from api.runs.status import DesiredState, RunStatus
from api.tables import Run
from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import Event
from hillclimb.spec.run import RunSpec

ATTEMPT = 1
AT_ONCE = 100
"""Events from which rows are derived together, as in a batch of ingest."""
IMPORTED = "run.imported"
"""Type of the first event of an imported run."""


def add_ended_run(
    session: Session, key: RunKey, spec: RunSpec, *, last_step: int, ended_at: datetime
) -> Run:
    """Add the row of a run that succeeded, locked by being new; nothing schedules it."""
    run = Run(
        id=key.id,
        project_id=key.project_id,
        name=spec.name,
        status=RunStatus.SUCCEEDED.value,
        desired_state=DesiredState.RUNNING.value,
        spec=spec.model_dump(mode="json"),
        config_hash=config_hash(spec),
        created_by=key.actor,
        origin=key.origin.model_dump(mode="json"),
        end_code=ReasonCode.COMPLETED.value,
        end_message=f"Imported from {key.origin.source}: this service did not run it.",
        attempt=ATTEMPT,
        num_failures=0,
        progress_step=last_step,
        progress_total=last_step,
        last_seq=0,
        epoch=0,
        status_since=key.now,
        created_at=key.now,
        updated_at=key.now,
        started_at=ended_at,
        ended_at=ended_at,
    )
    session.add(run)
    session.flush()
    return run


def record_events(
    session: Session, run: Run, key: RunKey, events: Sequence[Event], warnings: Sequence[str]
) -> None:
    """Write the events after `run.imported`, and the rows that ingest derives from them."""
    threshold = float(run.spec["eval"]["pass_threshold"])
    append(
        session,
        run,
        [
            imported_event(run, key),
            *(to_draft(event, ATTEMPT, pass_threshold=threshold) for event in events),
            *(
                Draft(type="run.warning", at=key.now, data={"code": "import", "message": sentence})
                for sentence in warnings
            ),
        ],
    )
    for start in range(0, len(events), AT_ONCE):
        derive(session, run, ATTEMPT, events[start : start + AT_ONCE])


def imported_event(run: Run, key: RunKey) -> Draft:
    """Return the event about the import itself."""
    data = {"name": run.name, "config_hash": run.config_hash, **key.origin.model_dump(mode="json")}
    return Draft(type=IMPORTED, at=key.now, actor=key.actor, data=data)
