"""`/v1/health`: liveness of the process, readiness of its dependencies."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError

from api.clusters.cloud_worker import cloud_worker_warning
from api.http.problems import UNAVAILABLE, Problem, documented
from api.http.requests.context import Services, ServicesDep
from api.queue import BrokerUnreachable
from api.runs.journal import utc_now
from api.tables.database import SCHEMA_REVISION, revision_fault
from hillclimb.protocol.payloads.projects.service import ReadyPayload

router = APIRouter(prefix="/v1/health", tags=["health"])


class Alive(BaseModel):
    """The process is alive."""

    status: Literal["ok"] = "ok"


@router.get("", operation_id="health", summary="Is the process alive?")
def health() -> Alive:
    """Respond without using any dependency."""
    return Alive()


@router.get(
    "/ready",
    operation_id="ready",
    summary="Can requests be served?",
    responses={**documented(UNAVAILABLE)},
)
def ready(services: ServicesDep) -> ReadyPayload:
    """Check the database, its schema and the broker; warn if no worker checks the clusters."""
    faults = [fault for fault in (_database_fault(services), _broker_fault(services)) if fault]
    if faults:
        raise Problem(UNAVAILABLE, " ".join(faults))
    with services.database.transaction() as session:
        warning = cloud_worker_warning(session, now=utc_now())
    return ReadyPayload(database_revision=SCHEMA_REVISION, warnings=[warning] if warning else [])


def _database_fault(services: Services) -> str | None:
    try:
        schema = services.database.schema()
    except OperationalError:
        return "The database does not respond."
    return revision_fault(schema)


def _broker_fault(services: Services) -> str | None:
    try:
        services.task_queue.check()
    except BrokerUnreachable:
        return "The broker does not respond."
    return None
