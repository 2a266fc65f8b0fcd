"""`/v1/datasets`: datasets, their versions, tasks, files, differences and lint."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy.orm import Session

from api.datasets import blobs, creation, store
from api.datasets.creation import CreationContext, Order
from api.datasets.errors import (
    DatasetNotFound,
    DatasetRejected,
    DatasetsBusy,
    DatasetTooLarge,
    SourceRefused,
    TaskNotFound,
)
from api.datasets.reading import inspection, rows
from api.datasets.reading.description import dataset_facts, describe_version, version_summary
from api.datasets.reading.rows import TaskFilters
from api.datasets.request import parse_request
from api.datasets.sources import allowed_prefixes
from api.datasets.tool_token_counts import tools_in_project
from api.datasets.work.process import JobLimits
from api.http.document.openapi import upload_body
from api.http.problems import INVALID, KINDS, MALFORMED, TOO_LARGE, documented
from api.http.requests.context import Reader, Services, ServicesDep, Writer
from api.http.requests.cursor import read_cursor, sign_cursor
from api.http.requests.reads import as_list
from api.http.requests.uploads import receive
from api.http.routes.runs.runs import IdempotencyKey
from api.results.artifacts.checkpoints import stream_file
from api.runs.errors import CursorRejected
from api.tables import Dataset, DatasetVersion
from api.tables.access.idempotency import IdempotencyKeyReused, RequestKey
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.datasets.format.files import SPLIT, TASKS
from hillclimb.datasets.lint.lint import LintOptions
from hillclimb.protocol.payloads.datasets.diffs import DiffPayload
from hillclimb.protocol.payloads.datasets.lint import FindingList
from hillclimb.protocol.payloads.datasets.tasks import TaskList, TaskPayload
from hillclimb.protocol.payloads.datasets.versions import (
    DatasetList,
    DatasetPayload,
    VersionList,
    VersionPayload,
)

router = APIRouter(
    prefix="/v1/datasets",
    tags=["datasets"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", examples=["fleet-v4"])]
Number = Annotated[
    Literal["latest"] | Annotated[int, Path(ge=1, le=2**31 - 1)],
    Path(description="Number of the version, or `latest`."),
]
Cursor = Annotated[str | None, Query(max_length=4000)]
Limit = Annotated[int, Query(ge=1, le=200)]
GONE = documented(KINDS[DatasetNotFound])
FILES = {"tasks": TASKS, "split": SPLIT}
CREATION = (
    MALFORMED,
    TOO_LARGE,
    KINDS[DatasetRejected],
    KINDS[DatasetTooLarge],
    KINDS[DatasetsBusy],
    KINDS[SourceRefused],
    KINDS[IdempotencyKeyReused],
    KINDS[DatasetNotFound],
)


@router.post(
    "/{name}/versions",
    operation_id="create_dataset_version",
    summary="Create a version from a file of tasks",
    status_code=201,
    response_model=VersionPayload,
    responses={
        200: {"description": "The existing version of the same tasks and options"},
        **documented(*CREATION),
    },
    openapi_extra=upload_body(),
)
async def create_version(
    request: Request,
    services: ServicesDep,
    caller: Writer,
    name: Name,
    options: Annotated[
        str | None, Query(max_length=5_000, description="JSON, where the body is the file.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Read the tasks, split them, and store the version; responds when it is stored.

    The body is the file (JSON list, `{"tasks": [...]}`, or JSON lines; plain or gzip), or a form
    with the parts `tasks` and `options`. The same tasks with the same options return the existing
    version, with status 200.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-upload-") as folder:
        upload = await receive(request, FilePath(folder), options)
        order = Order(
            project_id=caller.project_id,
            name=name,
            actor=caller.actor,
            request=await services.dataset_pools.works.run(partial(parse_request, upload.options)),
            upload=upload.path,
            key=RequestKey(
                project_id=caller.project_id,
                method="POST",
                path=request.url.path,
                key=idempotency_key,
                body=upload.options + b"\n" + upload.sha256.encode(),
            )
            if idempotency_key
            else None,
        )
        make = partial(creation.create_version, creation_context(services), order)
        answer, replayed = await services.dataset_pools.works.run(make)
    number = answer.response["number"]
    headers = {"Location": f"/v1/datasets/{name}/versions/{number}"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(answer.response, status_code=answer.status, headers=headers)


@router.get(
    "",
    operation_id="list_datasets",
    summary="List datasets, newest first",
    responses={**documented(KINDS[CursorRejected])},
)
def list_datasets(
    services: ServicesDep, caller: Reader, limit: Limit = 50, cursor: Cursor = None
) -> DatasetList:
    """Return one page, each dataset with a summary of its newest version."""
    scope, secret = {"project": caller.project_id, "list": "datasets"}, services.cursor_secret
    after = None
    if cursor is not None:
        moment, dataset_id = read_cursor(cursor, scope, secret=secret)
        after = (datetime.fromisoformat(moment), dataset_id)
    with services.database.transaction() as session:
        datasets = store.list_datasets(session, caller.project_id, after=after, limit=limit + 1)
        page, has_more = datasets[:limit], len(datasets) > limit
        newest = store.newest_versions(session, page)
    position = [page[-1].created_at.isoformat(), page[-1].id] if has_more else None
    return DatasetList.of(
        as_list(
            [dataset_facts(each, newest.get(each.id)) for each in page],
            has_more=has_more,
            next_cursor=sign_cursor(position, scope, secret=secret) if position else None,
        )
    )


@router.get("/{name}", operation_id="get_dataset", summary="Get a dataset", responses={**GONE})
def get_dataset(services: ServicesDep, caller: Reader, name: Name) -> DatasetPayload:
    """Return the dataset with a summary of its newest version."""
    with services.database.transaction() as session:
        dataset = store.find_dataset(session, caller.project_id, name)
        newest = store.newest_versions(session, [dataset]).get(dataset.id)
        return DatasetPayload.of(dataset_facts(dataset, newest))


@router.get(
    "/{name}/versions",
    operation_id="list_dataset_versions",
    summary="List versions, newest first",
    responses={**GONE},
)
def list_versions(
    services: ServicesDep,
    caller: Reader,
    name: Name,
    limit: Limit = 50,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> VersionList:
    """Return one page; `before` is the number of the last version on the previous page."""
    with services.database.transaction() as session:
        dataset = store.find_dataset(session, caller.project_id, name)
        versions = store.list_versions(session, dataset, before=before, limit=limit + 1)
        page = [version_summary(dataset, each) for each in versions[:limit]]
    return VersionList.of(as_list(page, has_more=len(versions) > limit))


@router.get(
    "/{name}/versions/{number}",
    operation_id="get_dataset_version",
    summary="Get a version",
    responses={**GONE},
)
def get_version(
    services: ServicesDep, caller: Reader, name: Name, number: Number
) -> VersionPayload:
    """Return the version: environments, options, duplicates, excluded tasks, lint findings."""
    with open_version(services, caller, name, number) as (_, dataset, version):
        return describe_version(dataset, version)


@router.get(
    "/{name}/versions/{number}/tasks",
    operation_id="list_dataset_tasks",
    summary="List the tasks of a version, by key",
    response_model_exclude_unset=True,
    responses={**documented(KINDS[DatasetNotFound], KINDS[CursorRejected], KINDS[DatasetsBusy])},
)
async def list_tasks(  # noqa: PLR0913 - one parameter per filter
    services: ServicesDep,
    caller: Reader,
    name: Name,
    number: Number,
    env: Annotated[str | None, Query(max_length=64)] = None,
    split: Annotated[Literal["train", "eval", "excluded"] | None, Query()] = None,
    search: Annotated[str | None, Query(max_length=512, description="Part of the key.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> TaskList:
    """Return one page of tasks in full, each with its split and, if excluded, the reason."""
    filters = TaskFilters(env=env, split=split, search=search)

    def read() -> TaskList:
        with open_version(services, caller, name, number) as (_, dataset, version):
            pass
        scope, secret = {"version": version.id, "filters": repr(filters)}, services.cursor_secret
        after = read_cursor(cursor, scope, secret=secret)[0] if cursor is not None else ""
        tasks = rows.list_tasks(services.store, version, filters, after=after, limit=limit + 1)
        page, has_more = tasks[:limit], len(tasks) > limit
        end = [page[-1]["key"]] if has_more else None
        return TaskList.of(
            as_list(
                page,
                has_more=has_more,
                next_cursor=sign_cursor(end, scope, secret=secret) if end else None,
                name=dataset.name,
                number=version.number,
            )
        )

    return await services.dataset_pools.reads.run(read)


@router.get(
    "/{name}/versions/{number}/tasks/{key:path}",
    operation_id="get_dataset_task",
    summary="Get one task",
    response_model_exclude_unset=True,
    responses={**documented(KINDS[DatasetNotFound], KINDS[TaskNotFound], KINDS[DatasetsBusy])},
)
async def get_task(
    services: ServicesDep, caller: Reader, name: Name, number: Number, key: str
) -> TaskPayload:
    """Return one task in full, with its split."""

    def read() -> TaskPayload:
        with open_version(services, caller, name, number) as (*_, version):
            pass
        return TaskPayload.of(rows.find_task(services.store, version, key))

    return await services.dataset_pools.reads.run(read)


@router.get(
    "/{name}/versions/{number}/files/{file}",
    operation_id="download_dataset_file",
    summary="Download the tasks or the split of a version",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/gzip": {}}, "description": "The file"},
        **documented(KINDS[DatasetNotFound], KINDS[DatasetsBusy]),
    },
)
async def download_file(
    services: ServicesDep,
    caller: Reader,
    name: Name,
    number: Number,
    file: Literal["tasks", "split"],
) -> StreamingResponse:
    """Return JSON lines, compressed by gzip, sorted by key."""

    def read() -> tuple[int, int, Iterator[bytes]]:
        with open_version(services, caller, name, number) as (*_, version):
            pass
        with blobs.local_copy(services.store, version.id, FILES[file]) as path:
            # The open file outlives its name, so nothing is left on disk if the client disconnects.
            return version.number, *stream_file(path)

    version_number, size, chunks = await services.dataset_pools.reads.run(read)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{name}-{version_number}-{FILES[file]}"',
        "X-Content-Type-Options": "nosniff",
        "X-Dataset-Version": str(version_number),
    }
    return StreamingResponse(chunks, media_type="application/gzip", headers=headers)


@router.get(
    "/{name}/versions/{number}/diff",
    operation_id="diff_dataset_versions",
    summary="Compare a version with an earlier one",
    responses={**documented(KINDS[DatasetNotFound], KINDS[DatasetTooLarge], KINDS[DatasetsBusy])},
)
async def diff_versions(
    services: ServicesDep,
    caller: Reader,
    name: Name,
    number: Number,
    base: Annotated[int, Query(ge=1, le=2**31 - 1, description="The version to compare with.")],
    base_name: Annotated[str | None, Query(max_length=63, description="Its dataset.")] = None,
) -> DiffPayload:
    """Return the tasks added, removed, changed and moved from `base` to this version."""
    first = base_name or name

    def compare() -> DiffPayload:
        with open_version(services, caller, name, number) as (session, _, after):
            before = store.find_version(session, caller.project_id, first, base)[1]
        changes = inspection.diff(services.store, before, after, limits(services))
        names = {"before": f"{first}@{base}", "after": f"{name}@{after.number}"}
        return DiffPayload.of({**names, **changes})

    return await services.dataset_pools.works.run(compare)


@router.post(
    "/{name}/versions/{number}/lint",
    operation_id="lint_dataset_version",
    summary="Lint a version under other options",
    responses={**documented(KINDS[DatasetNotFound], KINDS[DatasetTooLarge], KINDS[DatasetsBusy])},
)
async def lint_version(
    services: ServicesDep,
    caller: Reader,
    name: Name,
    number: Number,
    options: LintOptions | None = None,
) -> FindingList:
    """Return the lint findings under these options.

    `max_input_length` bounds the tokens of each environment's tools: those in `tool_tokens`, else
    the newest count of a run on this dataset, else of a run in the project.
    """
    lint_options = options or LintOptions()

    def lint() -> FindingList:
        with open_version(services, caller, name, number) as (session, _, version):
            measured = tools_in_project(session, caller.project_id, name)
        findings = inspection.lint(
            services.store, version, lint_options, limits(services), measured=measured
        )
        return FindingList.of(as_list(findings, name=name, number=version.number))

    return await services.dataset_pools.works.run(lint)


@contextmanager
def open_version(
    services: Services, caller: Reader, name: str, number: int | str
) -> Iterator[tuple[Session, Dataset, DatasetVersion]]:
    """Yield a session and a version; raises DatasetNotFound also for other projects' datasets."""
    with services.database.transaction() as session:
        version_number = None if isinstance(number, str) else number
        yield session, *store.find_version(session, caller.project_id, name, version_number)


def limits(services: Services) -> JobLimits:
    """Return the limits of a process that works on datasets."""
    settings = services.settings
    return JobLimits(
        memory_mb=settings.dataset_memory_mb,
        deadline_s=settings.dataset_deadline_s,
        max_unpacked_mb=settings.dataset_unpacked_mb,
    )


def creation_context(services: Services) -> CreationContext:
    """Return the parts of the service that creating a version uses."""
    return CreationContext(
        database=services.database,
        store=services.store,
        limits=limits(services),
        prefixes=allowed_prefixes(services.settings.dataset_sources),
        max_bytes=services.settings.dataset_max_mb * 1_000_000,
        store_urls=services.settings.store_urls,
    )
