"""The page of a run, and the static files of all pages."""

from __future__ import annotations

import json
import mimetypes
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.pages import run_banner, run_contents
from api.http.dashboard.reference import reference_page
from api.http.dashboard.run.actions import actions_contents
from api.http.dashboard.run.annotations import annotations_contents
from api.http.dashboard.sessions import COOKIE, form_token
from api.http.dashboard.templating import STATIC, render_page
from api.http.problems import DOMAIN_ERRORS, NOT_FOUND, Kind, Problem, kind_of
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import open_run
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

REFUSALS: tuple[type[Exception], ...] = (*DOMAIN_ERRORS, Problem)
"""What a page answers with a sentence."""
FILES = {path.name: path for path in STATIC.iterdir()}
"""The files that are served, by name; requests never name a path."""


async def visitor(request: Request) -> Principal | None:
    """Return the principal of the browser's session; null without a valid one."""
    caller: Principal | None = request.state.caller
    return caller


Visitor = Annotated[Principal | None, Depends(visitor)]


@router.get("/runs/{run_id}")
def run_page(request: Request, services: ServicesDep, caller: Visitor, run_id: str) -> Response:
    """Show one run; its script keeps the page up to date."""
    if caller is None:
        return redirect_to_login(f"/runs/{run_id}")
    caller.require(Scope.RUNS_READ)
    try:
        with open_run(services, caller, run_id) as (session, run):
            contents = run_contents(session, run, now=utc_now())
            token = form_token(request.cookies.get(COOKIE, ""), secret=services.cursor_secret)
            actions = actions_contents(session, run, caller, token=token)
            written = annotations_contents(run)
            may_write = Scope.RUNS_WRITE in caller.scopes
            return show_page(
                "run",
                **contents,
                actions=actions,
                written=written,
                token=token,
                may_write=may_write,
            )
    except RunNotFound as error:
        return show_page("problem", status=404, title="No such run", detail=str(error))


@router.get("/dashboard/runs/{run_id}/banner")
def banner(services: ServicesDep, caller: Reader, run_id: str) -> Response:
    """Return the banner: a sentence on the run's status."""
    with open_run(services, caller, run_id) as (session, run):
        return JSONResponse(run_banner(session, run, now=utc_now()))


@router.get("/docs")
def docs_page(request: Request) -> Response:
    """Show the reference of the API; needs no network and no key, as `/openapi.json`."""
    page = reference_page(json.dumps(request.app.openapi()))
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """Return a script, stylesheet or image of the pages."""
    path = FILES.get(name)
    if path is None:
        raise Problem(NOT_FOUND, "No resource has this path.")
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(path.read_bytes(), media_type=media_type, headers=headers)


def show_page(name: str, *, status: int = 200, **values: object) -> Response:
    """Return a page for a signed-in visitor."""
    page = render_page(name, signed_in=True, **values)
    return HTMLResponse(page, status_code=status, headers=PAGE_HEADERS)


def show_refusal(error: Exception) -> Response:
    """Return the page that says why a request was refused; the error is one of `REFUSALS`."""
    kind = refusal_kind(error)
    return show_page("problem", status=kind.status.value, title=kind.title, detail=str(error))


def refusal_kind(error: Exception) -> Kind:
    """Return the kind of problem of a refusal."""
    return error.kind if isinstance(error, Problem) else kind_of(error)


def redirect_to_login(target: str) -> Response:
    """Redirect to the sign-in form, which then leads to `target`."""
    # Quoted: a query in the path must not become part of this one.
    address = f"/login?next={quote(target)}"
    return RedirectResponse(address, status_code=303, headers=PAGE_HEADERS)
