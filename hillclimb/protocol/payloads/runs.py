"""What clients see of runs and attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from api.clusters.overview import of_one_run
from api.routes.costs import OutlookPayload
from api.routes.hardware import HardwarePayload
from api.runs import queue, store
from api.runs.journal import utc_now
from api.runs.reasons import Category, end_reason
from api.runs.status import WAITING, AttemptState, DesiredState, RunStatus
from api.tables import Attempt, Run


class Payload(BaseModel):
    """Base of answers: read from the domain's objects."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class EndReasonPayload(Payload):
    """Why a run ended, paused or is recovering."""

    code: str
    category: Category
    retryable: bool
    message: str


class ProgressPayload(Payload):
    """How far the trainer is."""

    step: int
    total: int
    eta_s: float | None
    phase: str | None


class QueuePayload(Payload):
    """Where a waiting run stands."""

    position: int
    """1 is next, among the runs that wait for the same kind of slot."""
    reason: str | None
    """Why it waits; null when its turn is now."""


class RunSummary(Payload):
    """A run in a list."""

    object: Literal["run"] = "run"
    id: str
    project_id: str
    name: str
    status: RunStatus
    desired_state: DesiredState
    end_reason: EndReasonPayload | None
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    num_failures: int
    progress: ProgressPayload
    config_hash: str
    created_by: str
    last_seq: int
    """`seq` of the newest event."""
    status_since: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class AttemptPayload(Payload):
    """One attempt of a run."""

    id: str
    number: int
    state: AttemptState
    from_step: int
    resume_from: str | None
    last_trainer_seq: int
    offered_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    last_event_at: datetime | None
    ended_at: datetime | None
    end_code: str | None
    end_message: str | None
    exit_code: int | None


class RunPayload(RunSummary):
    """A run, whole."""

    cost: OutlookPayload | None
    """What it has cost and will; null unless it has asked for a cluster."""

    queue: QueuePayload | None
    """Null unless the run waits for a slot."""
    attempts: list[AttemptPayload]
    spec: dict[str, Any]
    """The resolved spec."""


class RunList(Payload):
    """One page of runs, newest first."""

    object: Literal["list"] = "list"
    data: list[RunSummary]
    has_more: bool
    next_cursor: str | None = Field(description="Pass it as `cursor` with the same filters.")


class PlanPayload(Payload):
    """What submitting the spec would do."""

    object: Literal["plan"] = "plan"
    spec: dict[str, Any]
    config_hash: str
    warnings: tuple[str, ...]
    dataset: dict[str, Any] | None
    """The version and its tasks per environment; null where tasks are generated."""
    hardware: HardwarePayload | None
    """Machines, arithmetic and costs; null where none are rented."""
    queue: QueuePayload


def summarise_run(run: Run) -> RunSummary:
    """Return the run as lists show it."""
    return RunSummary.model_validate(_facts(run))


def describe_run(session: Session, run: Run) -> RunPayload:
    """Return the whole run, with its attempts and, while it waits, its place and the reason."""
    attempts: list[Attempt] = list(store.list_attempts(session, run.id))
    more = {"queue": _queue(session, run), "attempts": attempts, "spec": run.spec}
    cost = of_one_run(session, run, now=utc_now())
    return RunPayload.model_validate({**_facts(run), **more, "cost": cost})


def _facts(run: Run) -> dict[str, Any]:
    facts = {name: getattr(run, name) for name in RunSummary.model_fields if hasattr(run, name)}
    reason = end_reason(run.end_code, run.end_message) if run.end_code else None
    progress = ProgressPayload(
        step=run.progress_step,
        total=run.progress_total,
        eta_s=run.progress_eta_s,
        phase=run.progress_phase,
    )
    return {**facts, "end_reason": reason, "progress": progress}


def _queue(session: Session, run: Run) -> QueuePayload | None:
    if RunStatus(run.status) not in WAITING:
        return None
    return QueuePayload.model_validate(queue.place_of(session, run, now=utc_now()))
