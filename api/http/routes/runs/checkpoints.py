"""`/v1/runs/{id}/checkpoints`: list, manifest, files."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.checkpoints import (
    checkpoint_facts,
    file_address,
    find_checkpoint,
    list_checkpoints,
    open_file,
    read_manifest,
)
from api.results.artifacts.errors import ArtifactNotFound
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.checkpoints import (
    CheckpointList,
    CheckpointPayload,
    CheckpointWithManifest,
)

router = APIRouter(prefix="/v1/runs/{run_id}/checkpoints", tags=["results"], responses=PROBLEMS)

Step = Annotated[int, Path(ge=0, le=2**31 - 1)]
RANGE = re.compile(r"bytes=(\d{1,15})-")
"""The only supported kind of range; requests with another one get the whole file."""
GONE = documented(KINDS[RunNotFound], KINDS[ArtifactNotFound])


class FileRange:
    """The requested part of a file, and whether to redirect to the blob store."""

    def __init__(
        self,
        *,
        direct: bool = False,
        span: Annotated[str | None, Header(alias="Range")] = None,
    ) -> None:
        match = RANGE.fullmatch(span or "")
        self.direct = direct
        self.start = int(match[1]) if match else 0


@router.get("", operation_id="list_checkpoints", summary="List checkpoints, newest first")
def list_of_run(services: ServicesDep, caller: Reader, run_id: RunId) -> CheckpointList:
    """Return the complete checkpoints that retention has not deleted."""
    with open_run(services, caller, run_id) as (session, run):
        rows = list_checkpoints(session, run.id)
        data = [CheckpointPayload.model_validate(checkpoint_facts(row)) for row in rows]
    return CheckpointList(data=data, has_more=False)


@router.get("/{step}", operation_id="get_checkpoint", summary="Get a manifest", responses={**GONE})
def get_checkpoint(
    services: ServicesDep, caller: Reader, run_id: RunId, step: Step
) -> CheckpointWithManifest:
    """Return the checkpoint with its manifest: files, sizes, hashes."""
    with open_run(services, caller, run_id) as (session, run):
        checkpoint = find_checkpoint(session, run.id, step)
    manifest = read_manifest(services.store, checkpoint)
    return CheckpointWithManifest.model_validate(
        checkpoint_facts(checkpoint) | {"manifest": manifest}
    )


@router.get(
    "/{step}/files/{path:path}",
    operation_id="download_checkpoint_file",
    summary="Download a file of a checkpoint",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The file"},
        206: {
            "content": {"application/octet-stream": {}},
            "description": "The file from the first requested byte on",
        },
        307: {"description": "The address of the file, with `direct=true`"},
        **GONE,
    },
)
def download_file(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    step: Step,
    path: str,
    file_range: Annotated[FileRange, Depends()],
) -> Response:
    """Return the bytes of one file; its hash is in the manifest.

    `Range: bytes=N-` continues an interrupted download. With `direct=true` the response is a
    redirect to the blob store if it has addresses, as S3 does: valid for an hour, without a key of
    this service.
    """
    with open_run(services, caller, run_id) as (session, run):
        checkpoint = find_checkpoint(session, run.id, step)
    if file_range.direct:
        address = file_address(services.store, checkpoint, path)
        if address is not None:
            return RedirectResponse(address, status_code=307)
    size, start, chunks = open_file(services.store, checkpoint, path, first_byte=file_range.start)
    headers = {"X-Content-Type-Options": "nosniff", "Accept-Ranges": "bytes"}
    if start:
        headers |= {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
    return StreamingResponse(
        chunks,
        status_code=206 if start else 200,
        media_type="application/octet-stream",
        headers=headers | {"Content-Length": str(size - start)},
    )
