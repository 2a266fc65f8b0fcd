"""`/v1/runs/{id}/checkpoints`: list, manifest, files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import StreamingResponse

from api.artifacts.checkpoints import (
    checkpoint_facts,
    find_checkpoint,
    list_checkpoints,
    open_file,
    read_manifest,
)
from api.artifacts.errors import ArtifactNotFound
from api.problems import KINDS, documented
from api.routes.context import Reader, ServicesDep
from api.routes.reads import PROBLEMS, RunId, as_list, open_run
from api.runs.errors import RunNotFound

router = APIRouter(prefix="/v1/runs/{run_id}/checkpoints", tags=["results"], responses=PROBLEMS)

Step = Annotated[int, Path(ge=0, le=2**31 - 1)]
GONE = documented(KINDS[RunNotFound], KINDS[ArtifactNotFound])


@router.get("", operation_id="list_checkpoints", summary="List checkpoints, newest first")
def list_of_run(services: ServicesDep, caller: Reader, run_id: RunId) -> dict[str, Any]:
    """Return the complete checkpoints that retention has kept."""
    with open_run(services, caller, run_id) as (session, run):
        return as_list([checkpoint_facts(found) for found in list_checkpoints(session, run.id)])


@router.get("/{step}", operation_id="get_checkpoint", summary="Get a manifest", responses={**GONE})
def get_checkpoint(
    services: ServicesDep, caller: Reader, run_id: RunId, step: Step
) -> dict[str, Any]:
    """Return the checkpoint with its manifest: files, sizes, hashes."""
    with open_run(services, caller, run_id) as (session, run):
        found = find_checkpoint(session, run.id, step)
    return checkpoint_facts(found) | {"manifest": read_manifest(services.store, found)}


@router.get(
    "/{step}/files/{path:path}",
    operation_id="download_checkpoint_file",
    summary="Download a file of a checkpoint",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The file"},
        **GONE,
    },
)
def download_file(
    services: ServicesDep, caller: Reader, run_id: RunId, step: Step, path: str
) -> StreamingResponse:
    """Return the bytes of one file; its hash is in the manifest."""
    with open_run(services, caller, run_id) as (session, run):
        found = find_checkpoint(session, run.id, step)
    size, chunks = open_file(services.store, found, path)
    headers = {"Content-Length": str(size), "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(chunks, media_type="application/octet-stream", headers=headers)
