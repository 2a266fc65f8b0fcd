"""The list of runs: one page of it, its rows anew while runs move, and their verdicts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.run.run_list import KINDS, VERDICT_TONES, list_rows
from api.http.dashboard.templating import render_page
from api.http.requests.context import Reader, Services, ServicesDep
from api.http.requests.cursor import read_cursor, sign_cursor
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.http.routes.web.run_pages import address_of
from api.results.evals.headlines import verdict_of
from api.runs import store
from api.runs.errors import CursorRejected, RunNotFound
from api.runs.journal import utc_now
from api.runs.status import RunStatus
from api.runs.store import RunFilters
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

LIST_LIMIT = 50
Contents = dict[str, Any]
Kind = Literal["", "train", "eval", "probe", "validate", "preview"]
StatusChoice = Annotated[str, Query(max_length=20)]


async def chosen_filters(
    status: StatusChoice = "",
    kind: Kind = "",
    name: Annotated[str, Query(max_length=120)] = "",
    tag: Annotated[str, Query(max_length=64)] = "",
) -> Contents:
    """Return the filled-in fields of the form; a status that does not exist is none."""
    known = status if status in {each.value for each in RunStatus} else ""
    fields = {"status": known, "kind": kind, "name": name.strip(), "tag": tag.strip()}
    return {field: value for field, value in fields.items() if value}


Chosen = Annotated[Contents, Depends(chosen_filters)]
Cursor = Annotated[str | None, Query(max_length=1000)]


@router.get("/")
def runs_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    chosen: Chosen,
    cursor: Cursor = None,
) -> Response:
    """Show one page of the caller's runs, newest first."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    try:
        contents = _contents(services, caller, chosen, cursor)
    except CursorRejected as error:
        return show_page("problem", status=400, title="No such page", detail=str(error))
    return show_page(
        "runs",
        **contents,
        chosen=chosen,
        is_later=cursor is not None,
        may_submit=Scope.RUNS_WRITE in caller.scopes,
        statuses=[each.value for each in RunStatus],
        kinds=KINDS,
    )


@router.get("/dashboard/runs")
def rows_part(
    services: ServicesDep, caller: Reader, chosen: Chosen, cursor: Cursor = None
) -> Response:
    """Return the rows of that page as they are now."""
    page = render_page("runs_part", **_contents(services, caller, chosen, cursor))
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.get("/dashboard/verdicts")
def verdicts(
    services: ServicesDep,
    caller: Reader,
    run: Annotated[list[str], Query(max_length=LIST_LIMIT)],
) -> Response:
    """Return the verdict word of each run that has one, with its tone: computed from outcomes."""
    words: dict[str, dict[str, str]] = {}
    for run_id in run:
        with services.database.transaction() as session:
            try:
                word = verdict_of(session, store.get_run(session, caller.project_id, run_id))
            except RunNotFound:
                continue
        if word is not None:
            words[run_id] = {"word": word, "tone": VERDICT_TONES.get(word, "")}
    return JSONResponse(words, headers=PAGE_HEADERS)


def _contents(
    services: Services, caller: Principal, chosen: Contents, cursor: str | None
) -> Contents:
    scope = {"project": caller.project_id, "dashboard": urlencode(chosen)}
    after = None
    if cursor is not None:
        moment, run_id = read_cursor(cursor, scope, secret=services.cursor_secret)
        after = (datetime.fromisoformat(moment), run_id)
    filters = RunFilters(
        status=(chosen["status"],) if "status" in chosen else (),
        kind=chosen.get("kind"),
        name=chosen.get("name"),
        tags=(chosen["tag"],) if "tag" in chosen else (),
    )
    with services.database.transaction() as session:
        runs = store.list_runs(
            session, caller.project_id, filters, after=after, limit=LIST_LIMIT + 1
        )
        page = runs[:LIST_LIMIT]
        rows = list_rows(session, page, now=utc_now())
    following = None
    if len(runs) > LIST_LIMIT:
        position = [page[-1].created_at.isoformat(), page[-1].id]
        following = sign_cursor(position, scope, secret=services.cursor_secret)
    query = urlencode(chosen | {"cursor": following}) if following else None
    return {"runs": rows, "next_query": query, "query": urlencode(chosen)}
