"""`/v1/runs/{id}/capsule`: all that says how a run came about, as one zip."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from api.datasets.reading.description import describe_version
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.capsule.capsule import prepare_capsule, send_capsule
from api.results.artifacts.errors import ArtifactNotFound
from api.runs.errors import RunNotFound

router = APIRouter(prefix="/v1/runs/{run_id}/capsule", tags=["results"], responses=PROBLEMS)

Tasks = Annotated[bool, Query(description="Include the rows and the split of the dataset version.")]


@router.get(
    "",
    operation_id="download_capsule",
    summary="Download the capsule of a run",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/zip": {}}, "description": "The capsule"},
        **documented(KINDS[RunNotFound], KINDS[ArtifactNotFound]),
    },
)
def download_capsule(
    services: ServicesDep, caller: Reader, run_id: RunId, *, tasks: Tasks = False
) -> StreamingResponse:
    """Return a zip with spec, events, evaluations, outcomes, dataset version and `capsule.json`.

    The last member, `capsule.json`, has code, seeds, attempts and machines, and the SHA-256 of
    every other member. An ended run always gives the same bytes.
    """
    with open_run(services, caller, run_id) as (session, run):
        capsule = prepare_capsule(session, run)
        version = describe_version(*capsule.dataset) if capsule.dataset else None
    # Outside the session: reading the store may use the network.
    chunks = send_capsule(
        capsule,
        services.database,
        services.store,
        version.model_dump(mode="json") if version else None,
        with_tasks=tasks,
    )
    headers = {
        "Content-Disposition": f'attachment; filename="{capsule.manifest.run_id}.capsule.zip"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(chunks, media_type="application/zip", headers=headers)
