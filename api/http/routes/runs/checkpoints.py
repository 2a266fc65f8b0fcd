"""`/v1/runs/{id}/checkpoints`: list, manifest, files."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from api.artifacts.checkpoints import (
    checkpoint_facts,
    file_address,
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
REST = re.compile(r"bytes=(\d{1,15})-")
"""The one kind of range that is served; others are answered with the whole file."""
GONE = documented(KINDS[RunNotFound], KINDS[ArtifactNotFound])


class Wanted:
    """Which part of a file is wanted, and whether from the store itself."""

    def __init__(
        self,
        *,
        direct: bool = False,
        span: Annotated[str | None, Header(alias="Range")] = None,
    ) -> None:
        rest = REST.fullmatch(span or "")
        self.direct = direct
        self.start = int(rest[1]) if rest else 0


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
        206: {"content": {"application/octet-stream": {}}, "description": "Its end"},
        307: {"description": "Where to fetch it, with `direct=true`"},
        **GONE,
    },
)
def download_file(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    step: Step,
    path: str,
    wanted: Annotated[Wanted, Depends()],
) -> Response:
    """Return the bytes of one file; its hash is in the manifest.

    `Range: bytes=N-` gives the rest of a download that broke off. With `direct=true` a store that
    has addresses, such as S3, is pointed to instead: for an hour, without a key of this service.
    """
    with open_run(services, caller, run_id) as (session, run):
        found = find_checkpoint(session, run.id, step)
    if wanted.direct:
        address = file_address(services.store, found, path)
        if address is not None:
            return RedirectResponse(address, status_code=307)
    size, start, chunks = open_file(services.store, found, path, wanted_from=wanted.start)
    headers = {"X-Content-Type-Options": "nosniff", "Accept-Ranges": "bytes"}
    if start:
        headers |= {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
    return StreamingResponse(
        chunks,
        status_code=206 if start else 200,
        media_type="application/octet-stream",
        headers=headers | {"Content-Length": str(size - start)},
    )
