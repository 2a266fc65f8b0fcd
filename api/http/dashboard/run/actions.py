"""Actions that a run's status allows now, and the requests that their forms make."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from api.admission.deletion.runs import may_delete
from api.admission.lineage.fork import ForkRequest
from api.results.artifacts.checkpoints import list_checkpoints
from api.runs.errors import CheckpointNotFound, ForkRejected
from api.runs.status import TERMINAL, DesiredState, RunStatus
from api.runs.stored_spec import spec_of
from api.tables import Run
from api.tables.access.identity import Principal, Scope
from hillclimb.spec.preflight.evaluation import evaluation_of
from hillclimb.spec.run import RunSpec

_IDLE = frozenset({RunStatus.PAUSED, RunStatus.PAUSING})
_LEAVING = TERMINAL | {RunStatus.FINALIZING, RunStatus.CANCELLING}


def actions_contents(
    session: Session, run: Run, caller: Principal, *, token: str
) -> dict[str, Any] | None:
    """Return the actions that the run's status allows; null for one who may only read."""
    if Scope.RUNS_WRITE not in caller.scopes or run.origin is not None:
        return None
    status = RunStatus(run.status)
    is_leaving = status in _LEAVING or run.desired_state == DesiredState.CANCELLED.value
    steps = [each.step for each in list_checkpoints(session, run.id)]
    return {
        "token": token,
        "key": secrets.token_urlsafe(16),
        "can_pause": not is_leaving and status not in _IDLE,
        "can_cancel": not is_leaving,
        "resume": _resume_label(status, steps),
        "steps": steps,
        "can_delete": status in TERMINAL and may_delete(session, run, caller),
        "is_forkable": run.spec.get("kind", "train") == "train",
    }


def _resume_label(status: RunStatus, steps: list[int]) -> str:
    if status is RunStatus.PAUSED:
        return "Resume"
    if status in (RunStatus.FAILED, RunStatus.CANCELLED) and steps:
        return "Resume as a new run"
    return ""


def evaluation_request(session: Session, run: Run, fields: Mapping[str, str]) -> RunSpec:
    """Return the spec of an evaluation of the chosen checkpoint; raises CheckpointNotFound."""
    step = fields.get("step", "")
    for each in list_checkpoints(session, run.id):
        if str(each.step) == step:
            spec = spec_of(run).model_dump(mode="json")
            spec = evaluation_of(spec, run_id=run.id, step=each.step, attempt=each.attempt)
            return RunSpec.model_validate(spec)
    raise CheckpointNotFound(f"Run {run.id} has no checkpoint at step {step or '(none chosen)'}.")


def fork_request(fields: Mapping[str, str]) -> ForkRequest:
    """Return the request of the fork form; raises ForkRejected for a line that is no change."""
    changes: dict[str, Any] = {}
    for line in fields.get("changes", "").splitlines():
        if not line.strip():
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise ForkRejected(f"{line.strip()!r} is no change: write KEY=VALUE, one per line.")
        changes[key.strip()] = _value(value.strip())
    step = fields.get("step", "")
    try:
        return ForkRequest.model_validate(
            {
                "step": int(step) if step.isdigit() else None,
                "changes": changes,
                "name": fields.get("name", "").strip() or None,
            }
        )
    except ValueError as error:
        raise ForkRejected(f"The fork is not valid: {error}") from error


def _value(text: str) -> Any:  # noqa: ANN401 (any JSON)
    """Return JSON as its value, other text as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
