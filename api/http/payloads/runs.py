"""Builds the payloads of runs and plans from their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.admission.submit import Plan
from api.clusters.overview import forecast_of_run
from api.http.payloads.hardware import describe_hardware
from api.results.evals.conclusion import conclusion_of_run, result_of_run
from api.runs import store
from api.runs.end_reasons import end_reason
from api.runs.journal import utc_now
from api.runs.status import WAITING, RunStatus
from api.scheduling import queue
from api.scheduling.capacity.arrivals import Arrival
from api.tables import Attempt, Run
from hillclimb.protocol.payloads.runs import (
    PlanPayload,
    ProgressPayload,
    QueuePayload,
    RemovedPayload,
    RunPayload,
    RunSummary,
)
from hillclimb.stats.conclusion import EvalFigures

_NOTHING_YET = {"cost": None, "result": None, "conclusion": None}


def summarise_run(run: Run, result: EvalFigures | None = None) -> RunSummary:
    """Return the summary of a run, for lists; with a result if one was computed."""
    return RunSummary.model_validate({**_facts(run, run.spec["kind"]), "result": result})


def summarise_without_spec(run: Run, kind: str) -> RunSummary:
    """Return the summary of a run whose spec was not read."""
    return RunSummary.model_validate({**_facts(run, kind), "result": None})


def describe_run(session: Session, run: Run, arrival: Arrival | None = None) -> RunPayload:
    """Return a run in full: with its attempts and, while it waits, its queue position.

    Of a run that is being submitted, `arrival` is what it found.
    """
    place = _queue(session, run, arrival)
    more: dict[str, Any] = {"queue": place, "attempts": [], "spec": run.spec}
    more["removed"] = _removed(run)
    if run.attempt == 0 and run.origin is None:
        # Before the first attempt there is nothing else to read.
        return RunPayload.model_validate(_facts(run, run.spec["kind"]) | more | _NOTHING_YET)
    attempts: list[Attempt] = list(store.list_attempts(session, run.id))
    cost = forecast_of_run(session, run, now=utc_now())
    result = result_of_run(session, run)
    outcome = {"result": result, "conclusion": conclusion_of_run(session, run, result)}
    more |= {"attempts": attempts, "cost": cost}
    return RunPayload.model_validate({**_facts(run, run.spec["kind"]), **more, **outcome})


def describe_plan(plan: Plan, *, now: datetime) -> PlanPayload:
    """Return a plan as JSON; `hardware` is null for a run that rents no machines."""
    max_hours = plan.max_hours
    return PlanPayload(
        spec=plan.spec,
        config_hash=plan.config_hash,
        warnings=plan.warnings,
        dataset=plan.dataset,
        hardware=describe_hardware(plan.hardware, plan.quoted, max_hours, now=now)
        if plan.hardware is not None and max_hours is not None
        else None,
        queue=QueuePayload(position=plan.queue_position, reason=plan.queue_reason),
        from_defaults=plan.from_defaults,
    )


def run_as_json(session: Session, run: Run, arrival: Arrival | None = None) -> dict[str, Any]:
    """Return a run in full as the JSON of a response."""
    return describe_run(session, run, arrival).model_dump(mode="json")


def _facts(run: Run, kind: str) -> dict[str, Any]:
    facts = {name: getattr(run, name) for name in RunSummary.model_fields if hasattr(run, name)}
    reason = end_reason(run.end_code, run.end_message) if run.end_code else None
    progress = ProgressPayload(
        step=run.progress_step,
        total=run.progress_total,
        eta_s=run.progress_eta_s,
        phase=run.progress_phase,
    )
    return {**facts, "kind": kind, "end_reason": reason, "progress": progress}


def _removed(run: Run) -> RemovedPayload | None:
    removed = RemovedPayload.model_validate(run)
    return removed if any(removed.model_dump().values()) else None


def _queue(session: Session, run: Run, arrival: Arrival | None) -> QueuePayload | None:
    if RunStatus(run.status) not in WAITING:
        return None
    place = queue.queue_position(session, run, now=utc_now(), arrival=arrival)
    return QueuePayload.model_validate(place)
