"""Forms that act on a run: pause, resume, cancel, evaluate, fork, annotate, delete.

Each does what its route of the API does. A form carries a token that only pages of the session
know, and a key under which a repeated submission returns the first one's run.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, BackgroundTasks, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.admission.annotations import annotate_run
from api.admission.deletion.runs import delete_run
from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.run.actions import actions_contents, evaluation_request, fork_request
from api.http.dashboard.run.annotations import annotation_of
from api.http.dashboard.sessions import COOKIE, check_form_token, form_token
from api.http.dashboard.templating import render_page
from api.http.problems import MALFORMED, Problem
from api.http.requests.context import RawBody, Reader, Services, ServicesDep, request_key
from api.http.requests.reads import open_run
from api.http.requests.stopping import stop_and_enqueue
from api.http.routes.web.dashboard import REFUSALS, Visitor, redirect_to_login, show_refusal
from api.runs.journal import utc_now
from api.scheduling import control
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

Action = Literal["pause", "resume", "cancel", "evaluate", "fork", "annotate", "delete"]
MAX_FIELDS = 500
"""More than the largest form has: that of a spec."""


@router.get("/dashboard/runs/{run_id}/actions")
def actions_part(request: Request, services: ServicesDep, caller: Reader, run_id: str) -> Response:
    """Return the buttons that the run's status allows now."""
    with open_run(services, caller, run_id) as (session, run):
        token = token_of(request, services)
        actions = actions_contents(session, run, caller, token=token)
        page = render_page("run/actions_part", run=run, actions=actions)
    return HTMLResponse(page, headers=PAGE_HEADERS)


@router.post("/runs/{run_id}/actions/{action}")
def act(  # noqa: PLR0913 (one per part of the request)
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    run_id: str,
    action: Action,
    body: RawBody,
    background: BackgroundTasks,
) -> Response:
    """Do what the form says and lead to the run, or to the new one; say why where it cannot."""
    if caller is None:
        return redirect_to_login(f"/runs/{run_id}")
    try:
        fields = form_fields(request, services, caller, body)
        target = _act(services, caller, run_id, action, fields, background)
    except REFUSALS as error:
        return show_refusal(error)
    path = "/" if target is None else f"/runs/{target}"
    response = RedirectResponse(path, status_code=303, headers=PAGE_HEADERS)
    response.background = background
    return response


def form_fields(
    request: Request,
    services: Services,
    caller: Principal,
    body: bytes,
    *,
    scope: Scope = Scope.RUNS_WRITE,
) -> dict[str, str]:
    """Return the fields of a form, without those that are empty.

    Raises NotAllowed without the scope, NotAuthenticated for a form that is not ours, and Problem
    for one with too many fields.
    """
    caller.require(scope)
    try:
        read = parse_qs(body.decode(errors="replace"), max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Problem(MALFORMED, f"The form has more than {MAX_FIELDS} fields.") from error
    fields = {name: values[0] for name, values in read.items()}
    cookie, token = request.cookies.get(COOKIE, ""), fields.pop("token", "")
    check_form_token(cookie, token, secret=services.cursor_secret)
    return fields


def token_of(request: Request, services: Services) -> str:
    """Return the token of the forms of the request's session."""
    return form_token(request.cookies.get(COOKIE, ""), secret=services.cursor_secret)


def _act(
    services: Services,
    caller: Principal,
    run_id: str,
    action: Action,
    fields: dict[str, str],
    background: BackgroundTasks,
) -> str | None:
    """Return the run to show: a new one after evaluate, fork and some resumes; null: the list."""
    stops = {"pause": control.pause, "cancel": control.cancel}
    if action in stops:
        stop_and_enqueue(services, caller, run_id, background, stops[action])
        return run_id
    if action == "annotate":
        with services.database.transaction() as session:
            annotate_run(session, caller.project_id, run_id, annotation_of(fields))
        return run_id
    if action == "delete":
        with services.database.transaction() as session:
            delete_run(session, run_id, caller, now=utc_now())
        return None
    path = f"/runs/{run_id}/actions/{action}"
    request = request_key(caller, path, fields.get("key"), b"")
    if action == "resume":
        admitted = services.admission.resume(run_id, caller, request)
    elif action == "fork":
        admitted = services.admission.fork(run_id, fork_request(fields), caller, request)
    else:
        with open_run(services, caller, run_id) as (session, run):
            spec = evaluation_request(session, run, fields)
        admitted = services.admission.submit(spec, caller, request)
    if not admitted.is_replayed:
        background.add_task(services.task_queue.enqueue, [admitted.run_id])
    return admitted.run_id
