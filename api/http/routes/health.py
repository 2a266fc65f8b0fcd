"""`/v1/health`: liveness of the process, readiness of its dependencies."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from api.http.measurement.readiness import Readiness
from api.http.problems import UNAVAILABLE, Problem, documented
from api.tables.database import SCHEMA_REVISION
from hillclimb.protocol.payloads.projects.service import ReadyPayload

router = APIRouter(prefix="/v1/health", tags=["health"])


class Alive(BaseModel):
    """The process is alive."""

    status: Literal["ok"] = "ok"


# Coroutines: plain functions would wait for one of the threads that requests may have taken.
@router.get("", operation_id="health", summary="Is the process alive?")
async def health() -> Alive:
    """Respond without using any dependency."""
    return Alive()


@router.get(
    "/ready",
    operation_id="ready",
    summary="Can requests be served?",
    responses={**documented(UNAVAILABLE)},
)
async def ready(request: Request) -> ReadyPayload:
    """Check the database, its schema, the broker, and that a thread and a connection are free.

    Responds within about two seconds; warns if no worker checks the clusters.
    """
    readiness: Readiness = request.app.state.readiness
    findings = await readiness.look()
    if findings.faults:
        raise Problem(UNAVAILABLE, " ".join(findings.faults))
    return ReadyPayload(database_revision=SCHEMA_REVISION, warnings=list(findings.warnings))
