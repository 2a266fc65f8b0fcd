"""Payloads for tests of the client and the command line."""

from typing import Any

from hillclimb.protocol.payloads.events import EventPayload
from hillclimb.protocol.payloads.runs import RunPayload

AT = "2026-01-02T03:04:05Z"


def run_json(**changes: Any) -> dict[str, Any]:
    """Return a run as the service sends it."""
    run = {
        "object": "run",
        "id": "run_1",
        "project_id": "prj_1",
        "name": "climb",
        "status": "queued",
        "desired_state": "running",
        "end_reason": None,
        "attempt": 0,
        "num_failures": 0,
        "progress": {"step": 0, "total": 9, "eta_s": None, "phase": None},
        "config_hash": "0" * 64,
        "created_by": "key:test",
        "last_seq": 1,
        "status_since": AT,
        "created_at": AT,
        "updated_at": AT,
        "started_at": None,
        "ended_at": None,
        "cost": None,
        "queue": None,
        "attempts": [],
        "spec": {},
    }
    return run | changes


def run_payload(**changes: Any) -> RunPayload:
    """Return a run as the client does."""
    return RunPayload.model_validate(run_json(**changes))


def event_payload(kind: str, data: dict[str, Any]) -> EventPayload:
    """Return an event as the client does."""
    return EventPayload.model_validate(
        {
            "seq": 1,
            "id": "evt_1",
            "type": kind,
            "created_at": AT,
            "run_id": "run_1",
            "attempt": None,
            "actor": "service",
            "data": data,
        }
    )
