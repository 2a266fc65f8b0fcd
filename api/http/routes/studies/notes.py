"""`PATCH /v1/runs/{run_id}` and `PATCH /v1/datasets/{name}/versions/{number}`: tags and notes."""

from __future__ import annotations

from fastapi import APIRouter

from api.admission.annotations import (
    RunAnnotation,
    VersionAnnotation,
    annotate_run,
    annotate_version,
)
from api.datasets.errors import DatasetNotFound
from api.datasets.reading.description import describe_version
from api.http.document.openapi import json_body
from api.http.payloads.runs import describe_run
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import RawBody, ServicesDep, Writer
from api.http.routes.datasets.datasets import Name, Number
from api.http.routes.runs.runs import NO_RUN, RunId
from api.runs.errors import TooManyAnnotations
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.datasets.versions import VersionPayload
from hillclimb.protocol.payloads.runs import RunPayload

router = APIRouter(
    prefix="/v1",
    responses={
        **documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID, MALFORMED, TOO_LARGE)
    },
)


@router.patch(
    "/runs/{run_id}",
    operation_id="annotate_run",
    summary="Change tags, links and note of a run",
    tags=["runs"],
    responses={**documented(NO_RUN, KINDS[TooManyAnnotations])},
    openapi_extra=json_body("RunAnnotation"),
)
def annotate(services: ServicesDep, caller: Writer, run_id: RunId, body: RawBody) -> RunPayload:
    """Change what is sent; its spec, with the tags it was submitted with, stays. Idempotent."""
    changes = parse_body(RunAnnotation, body)
    with services.database.transaction() as session:
        run = annotate_run(session, caller.project_id, run_id, changes)
        session.flush()
        return describe_run(session, run)


@router.patch(
    "/datasets/{name}/versions/{number}",
    operation_id="annotate_dataset_version",
    summary="Change the note of a version",
    tags=["datasets"],
    responses={**documented(KINDS[DatasetNotFound])},
    openapi_extra=json_body("VersionAnnotation"),
)
def note_version(
    services: ServicesDep, caller: Writer, name: Name, number: Number, body: RawBody
) -> VersionPayload:
    """Replace the note; everything else of a version stays as it was created. Idempotent."""
    changes = parse_body(VersionAnnotation, body)
    chosen = None if isinstance(number, str) else number
    with services.database.transaction() as session:
        dataset, version = annotate_version(session, caller.project_id, name, chosen, changes)
        return describe_version(dataset, version)
