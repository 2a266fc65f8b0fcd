"""`/v1/runs/{id}/exports`: results of a run in bulk, and in the layout of SkyRL's dumps."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.errors import ArtifactNotFound, ArtifactRemoved
from api.results.artifacts.exports.skyrl_export import prepare_export, send_export
from api.results.artifacts.exports.tracking_files import tracking_keys, tracking_zip
from api.results.artifacts.retention import require_trajectories
from api.results.artifacts.rollouts.files import batches, rollout_lines
from api.results.artifacts.trajectories import TrajectoryFilters, pass_threshold
from api.results.errors import NoSuchEval
from api.runs.errors import RunNotFound

router = APIRouter(prefix="/v1/runs/{run_id}/exports", tags=["exports"], responses=PROBLEMS)

Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
Name = Annotated[str | None, Query(max_length=300)]


class RolloutQuery(BaseModel):
    """Filters of rollouts; other keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: Annotated[str | None, Field(max_length=300)] = None
    step: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    split: Literal["train", "eval"] | None = None
    decoding: Annotated[str | None, Field(max_length=300)] = None


NOSNIFF = {"X-Content-Type-Options": "nosniff"}


@router.get(
    "/rollouts",
    operation_id="download_rollouts",
    summary="Download rollouts in bulk",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/gzip": {}}, "description": "JSON lines"},
        **documented(KINDS[RunNotFound], KINDS[ArtifactNotFound], KINDS[ArtifactRemoved]),
    },
)
def download_rollouts(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    query: Annotated[RolloutQuery, Query()],
) -> StreamingResponse:
    """Return JSON lines, compressed by gzip: `outcome`, and `trajectory` as it was stored.

    In the order of steps, and of the files of trajectories within one. A trajectory that is not in
    the store is null.
    """
    filters = TrajectoryFilters(**query.model_dump())
    with open_run(services, caller, run_id) as (session, run):
        require_trajectories(run)
        chosen = batches(session, run.id, filters, pass_threshold=pass_threshold(run))
    if not chosen:
        raise ArtifactNotFound(f"Run {run_id} has no rollout that these filters let through.")
    lines = rollout_lines(services.database, services.store, chosen, filters)
    name = f'attachment; filename="{run_id}.jsonl.gz"'
    return StreamingResponse(
        lines, media_type="application/gzip", headers=NOSNIFF | {"Content-Disposition": name}
    )


@router.get(
    "/tracking",
    operation_id="export_tracking",
    summary="Export the files of experiment trackers",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/zip": {}},
            "description": "`attempt-N/wandb/...` and `attempt-N/tensorboard/...`",
        },
        **documented(KINDS[ArtifactNotFound]),
    },
)
def export_tracking(services: ServicesDep, caller: Reader, run_id: RunId) -> StreamingResponse:
    """Return a zip of the offline files of W&B and of TensorBoard's event files."""
    with open_run(services, caller, run_id) as (_, run):
        attempts = run.attempt
    # Outside the session: reading the store may use the network.
    keys = tracking_keys(services.store, run_id, attempts=attempts)
    name = f'attachment; filename="{run_id}.tracking.zip"'
    return StreamingResponse(
        tracking_zip(services.store, keys),
        media_type="application/zip",
        headers=NOSNIFF | {"Content-Disposition": name},
    )


@router.get(
    "/skyrl",
    operation_id="export_skyrl",
    summary="Export evaluations in the layout of SkyRL",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"application/zip": {}},
            "description": "`evals/{run}/global_step_N/{env}.jsonl` and `aggregated_results.jsonl`;"
            " the header X-Left-Out counts rollouts without a grade, which have no row",
        },
        **documented(KINDS[NoSuchEval]),
    },
)
def export_skyrl(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    step: Step = None,
    decoding: Name = None,
) -> StreamingResponse:
    """Return a zip of the evaluations under one decoding, by default the run's first.

    Rows of an imported dump are the original bytes. Of a run of the service the text is made from
    the stored turns (docs/imports.md).
    """
    with open_run(services, caller, run_id) as (session, run):
        export = prepare_export(session, run, decoding=decoding, step=step)
    # Outside the session: reading the store may use the network.
    content = send_export(services.database, services.store, export)
    headers = NOSNIFF | {
        "X-Left-Out": str(export.num_left_out),
        "Content-Disposition": f'attachment; filename="{run_id}.skyrl.zip"',
    }
    return StreamingResponse(content, media_type="application/zip", headers=headers)
