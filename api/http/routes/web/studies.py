"""Pages about several runs: two of them compared."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.http.dashboard.studies.compare import compare_contents
from api.http.requests.context import Services, ServicesDep
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.http.routes.web.run_pages import Contents, address_of
from api.results.comparison.comparison import Point, build_comparison
from api.results.errors import EvalError
from api.runs import store
from api.runs.errors import RunError
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

POINT = re.compile(r"([^@]{1,100})(?:@([0-9]{1,9}))?")
Text = Annotated[str, Query(max_length=120)]


@router.get("/compare")
def compare_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    a: Text = "",
    b: Text = "",
    decoding: Text = "",
) -> Response:
    """Show how evaluation b differs from a; without both, the form."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    a, b = a.strip(), b.strip()
    found: Contents | None = None
    problem, status = "", 200
    if a and b:
        try:
            found = _compared(services, caller, (a, b), decoding)
        except (RunError, EvalError, ValueError) as error:
            problem, status = str(error), 404
    return show_page("studies/compare", status=status, a=a, b=b, found=found, problem=problem)


def _compared(
    services: Services, caller: Principal, texts: tuple[str, str], decoding: str
) -> Contents:
    with services.database.transaction() as session:
        a, b = (_point(session, caller, text) for text in texts)
        return compare_contents(build_comparison(session, a, b), decoding)


def _point(session: Session, caller: Principal, text: str) -> Point:
    match = POINT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is neither RUN nor RUN@STEP.")
    run = store.get_run(session, caller.project_id, match[1])
    return Point(run=run, step=int(match[2]) if match[2] else None)
