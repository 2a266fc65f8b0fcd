"""Pages of datasets: the list, one version, and the difference between two."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from api.datasets import store
from api.datasets.errors import DatasetNotFound, DatasetsBusy, DatasetTooLarge
from api.datasets.reading import inspection
from api.http.dashboard.dataset_pages import diff_contents, list_contents, version_contents
from api.http.requests.context import ServicesDep
from api.http.routes.datasets.datasets import limits
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.runs.journal import utc_now
from api.tables.access.identity import Scope

router = APIRouter(include_in_schema=False)

LIST_LIMIT = 100
MAX_NUMBER = 2**31 - 1
"""Largest number that the table can hold."""


@router.get("/datasets")
def datasets_page(services: ServicesDep, caller: Visitor) -> Response:
    """Show the newest datasets of the caller's project."""
    if caller is None:
        return redirect_to_login("/datasets")
    caller.require(Scope.RUNS_READ)
    with services.database.transaction() as session:
        datasets = store.list_datasets(session, caller.project_id, after=None, limit=LIST_LIMIT + 1)
        contents = list_contents(session, datasets[:LIST_LIMIT])
    return show_page("datasets", **contents, has_more=len(datasets) > LIST_LIMIT)


@router.get("/datasets/{name}")
def newest_version_page(services: ServicesDep, caller: Visitor, name: str) -> Response:
    """Show the newest version of a dataset."""
    return _version_page(services, caller, name, None)


@router.get("/datasets/{name}/versions/{number}")
def version_page(services: ServicesDep, caller: Visitor, name: str, number: int) -> Response:
    """Show one version: environments, lint findings and exclusions."""
    return _version_page(services, caller, name, number)


@router.get("/datasets/{name}/versions/{number}/diff/{base}")
async def diff_page(
    services: ServicesDep, caller: Visitor, name: str, number: int, base: int
) -> Response:
    """Show the changes from version `base` to another one."""
    if caller is None:
        return redirect_to_login(f"/datasets/{name}/versions/{number}/diff/{base}")
    caller.require(Scope.RUNS_READ)
    project = caller.project_id

    def compare() -> Response:
        with services.database.transaction() as session:
            before = store.find_version(session, project, name, _bounded(base))[1]
            after = store.find_version(session, project, name, _bounded(number))[1]
        changes = inspection.diff(services.store, before, after, limits(services))
        contents = diff_contents(changes, name=name, base=base, number=number)
        return show_page("dataset_diff", **contents)

    try:
        return await services.dataset_pools.works.run(compare)
    except DatasetNotFound as error:
        return show_page("problem", status=404, title="No such version", detail=str(error))
    except (DatasetTooLarge, DatasetsBusy) as error:
        return show_page("problem", status=503, title="Comparison not available", detail=str(error))


def _version_page(
    services: ServicesDep, caller: Visitor, name: str, number: int | None
) -> Response:
    if caller is None:
        return redirect_to_login(f"/datasets/{name}" + (f"/versions/{number}" if number else ""))
    caller.require(Scope.RUNS_READ)
    try:
        with services.database.transaction() as session:
            version_number = None if number is None else _bounded(number)
            version = store.find_version(session, caller.project_id, name, version_number)
            contents = version_contents(session, *version, now=utc_now())
    except DatasetNotFound as error:
        return show_page("problem", status=404, title="No such dataset", detail=str(error))
    return show_page("dataset", **contents)


def _bounded(number: int) -> int:
    return max(0, min(number, MAX_NUMBER))
