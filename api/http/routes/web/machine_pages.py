"""Pages of machines: the section of a run's page, the project's clusters, a run's log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.machines import clusters_contents, machines_contents
from api.http.dashboard.run.log_text import plain_text
from api.http.dashboard.templating import render_page
from api.http.requests.context import Reader, Services, ServicesDep
from api.http.requests.reads import open_run
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.results.artifacts.log_search import LEVELS, Level, LogFilter, search_log
from api.results.artifacts.logs import LogPage, read_log
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables.access.identity import Scope

router = APIRouter(include_in_schema=False)

LOG_BYTES = 1 << 17
Text = Annotated[str, Query(max_length=200)]


@router.get("/clusters")
def clusters_page(services: ServicesDep, caller: Visitor) -> Response:
    """Show the clusters of the caller's project and their cost."""
    if caller is None:
        return redirect_to_login("/clusters")
    caller.require(Scope.RUNS_READ)
    with services.database.transaction() as session:
        contents = clusters_contents(session, caller.project_id, now=utc_now())
    return show_page("clusters", **contents)


@router.get("/dashboard/clusters")
def clusters_part(services: ServicesDep, caller: Reader) -> Response:
    """Return the contents of that page as they are now."""
    with services.database.transaction() as session:
        contents = clusters_contents(session, caller.project_id, now=utc_now())
    return HTMLResponse(render_page("clusters_part", **contents), headers=PAGE_HEADERS)


@router.get("/dashboard/runs/{run_id}/machines")
def machines_part(services: ServicesDep, caller: Reader, run_id: str) -> Response:
    """Return the current machines section of a run page; empty for a run that rents none."""
    with open_run(services, caller, run_id) as (session, run):
        machines = machines_contents(session, run, now=utc_now())
    if machines is None:
        return Response(status_code=204, headers=PAGE_HEADERS)
    page = render_page("machines_part", machines=machines, run_id=run_id)
    return HTMLResponse(page, headers=PAGE_HEADERS)


async def log_filter(
    level: Text = "", component: Text = "", environment: Text = "", text: Text = ""
) -> LogFilter:
    """Return the filter of the form, which sends empty fields as empty strings."""
    valid_level: Level | None = next((name for name in get_args(Level) if name == level), None)
    return LogFilter(
        level=valid_level,
        component=component or None,
        environment=environment or None,
        text=text or None,
    )


async def position(
    attempt: Annotated[str, Query(max_length=9, pattern=r"^[0-9]*$")] = "",
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> tuple[int | None, int]:
    """Return the requested attempt and the start position."""
    return (int(attempt) if attempt else None), after


@router.get("/runs/{run_id}/log")
def log_page(
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    filter_: Annotated[LogFilter, Depends(log_filter)],
    where: Annotated[tuple[int | None, int], Depends(position)],
) -> Response:
    """Show the filtered lines of a run's log from a position on."""
    if caller is None:
        return redirect_to_login(f"/runs/{run_id}/log")
    caller.require(Scope.RUNS_READ)
    attempt, after = where
    try:
        with open_run(services, caller, run_id) as (_, run):
            number = run.attempt if attempt is None else min(attempt, run.attempt)
    except RunNotFound as error:
        return show_page("problem", status=404, title="No such run", detail=str(error))
    page = _read(services, run_id, number, filter_, after)
    filters = {name: value for name, value in asdict(filter_).items() if value}
    return show_page(
        "log",
        run=run,
        attempt=number,
        levels=LEVELS,
        filter_=filter_,
        page=page,
        text=plain_text(page.text),
        after=after,
        more=urlencode(filters | {"attempt": number, "after": page.next_offset}),
    )


def _read(services: Services, run_id: str, attempt: int, filter_: LogFilter, after: int) -> LogPage:
    if filter_.is_active:
        return search_log(services.store, run_id, attempt, filter_, after=after, limit=LOG_BYTES)
    return read_log(services.store, run_id, attempt, after=after, limit=LOG_BYTES)
