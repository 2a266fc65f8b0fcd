"""`/v1/imports`: results of past runs, which become runs that ended."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from api.admission.imports.adopt import ImportContext
from api.admission.imports.capsule.run import import_capsule
from api.admission.imports.errors import ImportRejected, ImportsBusy
from api.admission.imports.skyrl.options import SkyRLOptions
from api.admission.imports.skyrl.run import import_skyrl
from api.admission.imports.wandb.options import WandbOptions
from api.admission.imports.wandb.run import import_wandb
from api.http.document.openapi import file_body
from api.http.payloads.runs import run_as_json
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.context import Services, ServicesDep, Writer
from api.http.requests.uploads import receive_file
from api.runs import store
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.runs import RunPayload

CREATED, OK = 201, 200
HISTORY_LINE = '{"step": 1, "metrics": {"reward/avg_raw_reward": 0.25}}\n'
ZIP = "application/zip"

router = APIRouter(
    prefix="/v1/imports",
    tags=["imports"],
    responses={
        200: {"model": RunPayload, "description": "The run of an earlier import of the same"},
        **documented(
            KINDS[NotAuthenticated],
            KINDS[NotAllowed],
            INVALID,
            MALFORMED,
            TOO_LARGE,
            KINDS[ImportRejected],
            KINDS[ImportsBusy],
        ),
    },
)


@router.post(
    "/skyrl",
    operation_id="import_skyrl",
    summary="Import SkyRL's dumps of evaluations",
    status_code=CREATED,
    response_model=RunPayload,
    openapi_extra=file_body(ZIP),
)
async def import_skyrl_dump(
    request: Request,
    services: ServicesDep,
    caller: Writer,
    options: Annotated[SkyRLOptions, Query()],
) -> JSONResponse:
    """Make a run that ended from a zip of `global_step_N/{env}.jsonl`.

    Each step becomes an evaluation with its outcomes and trajectories. The same files with the same
    options return the run of the first import, with status 200.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-upload-") as folder:
        path = await receive_file(request, Path(folder))
        work = partial(
            import_skyrl,
            _context(services, caller),
            path,
            options,
            max_bytes=services.settings.dataset_unpacked_mb * 1_000_000,
        )
        run_id, is_new = await services.dataset_pools.imports.run(work)
    return await services.dataset_pools.imports.run(
        partial(_answer, services, caller, run_id, is_new=is_new)
    )


@router.post(
    "/capsule",
    operation_id="import_capsule",
    summary="Import a capsule",
    status_code=CREATED,
    response_model=RunPayload,
    openapi_extra=file_body(ZIP),
)
async def import_capsule_file(
    request: Request, services: ServicesDep, caller: Writer
) -> JSONResponse:
    """Make a run that ended from a capsule: its events, outcomes and evaluations.

    Every member is compared with the manifest. Checkpoints and trajectories are not in a capsule.
    The same capsule returns the run of the first import, with status 200.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-upload-") as folder:
        path = await receive_file(request, Path(folder))
        work = partial(import_capsule, _context(services, caller), path)
        run_id, is_new = await services.dataset_pools.imports.run(work)
    return await services.dataset_pools.imports.run(
        partial(_answer, services, caller, run_id, is_new=is_new)
    )


@router.post(
    "/wandb",
    operation_id="import_wandb",
    summary="Import the history of a W&B run",
    status_code=CREATED,
    response_model=RunPayload,
    openapi_extra=file_body("application/x-ndjson", example=HISTORY_LINE),
)
async def import_wandb_history(
    request: Request,
    services: ServicesDep,
    caller: Writer,
    options: Annotated[WandbOptions, Query()],
) -> JSONResponse:
    """Make a run that ended from JSON lines of `step` and `metrics`, plain or gzip.

    It has metrics and no outcomes: no verdict can be computed from rates alone. The same history
    with the same options returns the run of the first import, with status 200.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-upload-") as folder:
        path = await receive_file(request, Path(folder))
        work = partial(
            import_wandb,
            _context(services, caller),
            path,
            options,
            max_bytes=services.settings.dataset_unpacked_mb * 1_000_000,
        )
        run_id, is_new = await services.dataset_pools.imports.run(work)
    return await services.dataset_pools.imports.run(
        partial(_answer, services, caller, run_id, is_new=is_new)
    )


def _context(services: Services, caller: Writer) -> ImportContext:
    return ImportContext(
        database=services.database, store=services.store, caller=caller, now=utc_now()
    )


def _answer(services: Services, caller: Writer, run_id: str, *, is_new: bool) -> JSONResponse:
    with services.database.transaction() as session:
        body = run_as_json(session, store.get_run(session, caller.project_id, run_id))
    headers = {"Location": f"/v1/runs/{run_id}"}
    return JSONResponse(body, CREATED if is_new else OK, headers)
