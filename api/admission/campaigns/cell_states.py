"""The state of a campaign's cell, from its run."""

from __future__ import annotations

from dataclasses import dataclass

from api.admission.campaigns.store import FilledCell
from api.runs.end_reasons import REASONS
from api.runs.status import RunStatus
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.statuses import Category
from hillclimb.protocol.payloads.studies.campaigns import CellState

_ACCEPTED = (RunStatus.QUEUED, RunStatus.PROVISIONING, RunStatus.RECOVERING)


@dataclass(frozen=True, slots=True)
class CellStatus:
    """The state of a cell, with the sentence that explains a blocked or retryable one."""

    state: CellState
    why: str | None = None


def status_of(filled: FilledCell) -> CellStatus:
    """Return the state of a cell."""
    return status_of_run(filled.run, filled.cell.problem)


def status_of_run(run: Run | None, problem: str | None) -> CellStatus:
    """Return the state of a cell with this run, or with the sentence that says why it has none."""
    if run is None:
        return CellStatus(CellState.BLOCKED, problem)
    status = RunStatus(run.status)
    if status is RunStatus.SUCCEEDED:
        return CellStatus(CellState.DONE)
    if status in _ACCEPTED:
        return CellStatus(CellState.ACCEPTED)
    if status is RunStatus.PAUSED:
        return CellStatus(CellState.BLOCKED, f"the run is paused: {_reason(run)}")
    if status is RunStatus.CANCELLED:
        return CellStatus(CellState.RETRYABLE, "the run was cancelled")
    if status is RunStatus.FAILED:
        return CellStatus(_after_failure(run), _reason(run))
    return CellStatus(CellState.RUNNING)


def _after_failure(run: Run) -> CellState:
    """A run that failed by its own settings fails again; any other may succeed."""
    own_fault = run.end_code and REASONS[ReasonCode(run.end_code)].category is Category.USER
    return CellState.BLOCKED if own_fault else CellState.RETRYABLE


def _reason(run: Run) -> str:
    return run.end_message or run.end_code or "no reason is stored"
