"""Cancels and pauses runs for routes and for the Slack app."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import BackgroundTasks

from api.http.payloads.runs import describe_run
from api.http.requests.context import Services
from api.runs import store
from api.runs.journal import utc_now
from api.tables.access.identity import Principal
from hillclimb.protocol.payloads.runs import RunPayload

NUM_TO_ENQUEUE = 5
"""Waiting runs to check when a slot may have become free."""


def stop_run(
    services: Services, caller: Principal, run_id: str, act: Callable[..., None]
) -> tuple[RunPayload, list[str]]:
    """Cancel or pause a run; return it, and the runs to enqueue: itself and the next in line."""
    with services.database.transaction() as session:
        run = store.lock_run(session, run_id, project_id=caller.project_id)
        act(session, run, actor=caller.actor, now=utc_now())
        waiting = store.next_waiting(session, caller.project_id, limit=NUM_TO_ENQUEUE)
        session.flush()
        return describe_run(session, run), [run_id, *waiting]


def stop_and_enqueue(
    services: Services,
    caller: Principal,
    run_id: str,
    background: BackgroundTasks,
    act: Callable[..., None],
) -> RunPayload:
    """Cancel or pause a run, and enqueue it and the next in line after the response."""
    payload, due = stop_run(services, caller, run_id, act)
    background.add_task(services.task_queue.enqueue, due)
    return payload
