"""`/submit`: a run from a form or from a text, with its plan and its cost before the button.

Plan and run are those of `POST /v1/runs/plan` and `POST /v1/runs`: the same spec, parsed, checked
and admitted by the same code.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.http.dashboard.forms.spec_values import Document, TextRejected, as_json
from api.http.dashboard.forms.submission import (
    SMALL_RUN,
    FormDraft,
    SpecCheck,
    View,
    draft_from,
    draft_of,
    outcome_contents,
    submit_contents,
    switched,
)
from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.templating import render_page
from api.http.payloads.runs import describe_plan
from api.http.problems import Problem
from api.http.requests.bodies import parse_spec
from api.http.requests.context import RawBody, Services, ServicesDep, request_key
from api.http.routes.web.dashboard import (
    REFUSALS,
    Visitor,
    redirect_to_login,
    show_page,
    show_refusal,
)
from api.http.routes.web.run_actions import form_fields, token_of
from api.http.routes.web.run_pages import address_of
from api.runs import store
from api.runs.journal import utc_now
from api.tables.access.identity import Principal, Scope
from hillclimb.hardware.presets.presets import NoSuchPreset, preset
from hillclimb.protocol.spec_problems import SpecProblem

router = APIRouter(include_in_schema=False)

REJECTIONS: tuple[type[Exception], ...] = (*REFUSALS, TextRejected)
"""What is said about a spec on its page."""
KEY = re.compile(r"[a-z_]+(\.[a-z0-9_]+)*")
Choice = Annotated[str, Query(max_length=120)]


@router.get("/submit")
def submit_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    preset: Choice = "",
    run: Choice = "",
    view: Literal["form", "text"] = "form",
) -> Response:
    """Show the form with a small run, a preset, or the spec of a run, and its plan."""
    if caller is None:
        return redirect_to_login(address_of(request))
    try:
        caller.require(Scope.RUNS_WRITE)
        draft = _beginning(services, caller, preset, run, view)
    except REFUSALS as error:
        return show_refusal(error)
    except NoSuchPreset as error:
        return show_page("problem", status=404, title="No such preset", detail=f"{error}.")
    return _page(request, services, draft, _check(services, caller, draft), chosen=preset)


@router.post("/submit/plan")
def plan_form(request: Request, services: ServicesDep, caller: Visitor, body: RawBody) -> Response:
    """Check what the form has: answer with the plan alone, or with the page in the chosen view."""
    if caller is None:
        return redirect_to_login("/submit")
    try:
        fields = form_fields(request, services, caller, body)
    except REFUSALS as error:
        return show_refusal(error)
    draft = draft_of(fields)
    if "part" in fields:
        outcome = outcome_contents(draft, _check(services, caller, draft))
        return HTMLResponse(
            render_page("forms/outcome_part", outcome=outcome), headers=PAGE_HEADERS
        )
    why = ""
    if (view := fields.get("do")) in ("form", "text"):
        try:
            draft, why = switched(draft, "form" if view == "form" else "text")
        except TextRejected as error:
            why = f"{error} It stays text."
    checked = _check(services, caller, draft)
    return _page(request, services, draft, checked, chosen=fields.get("preset", ""), why=why)


@router.post("/submit")
def submit_form(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    body: RawBody,
    background: BackgroundTasks,
) -> Response:
    """Submit what the form has and lead to the run; a second press leads to the first one's run."""
    if caller is None:
        return redirect_to_login("/submit")
    try:
        fields = form_fields(request, services, caller, body)
    except REFUSALS as error:
        return show_refusal(error)
    draft = draft_of(fields)
    try:
        run_id = _submit(services, caller, draft, fields.get("key"), background)
    except REJECTIONS as error:
        checked = _mistakes(error, draft)
        chosen = fields.get("preset", "")
        return _page(request, services, draft, checked, chosen=chosen, status=422)
    response = RedirectResponse(f"/runs/{run_id}", status_code=303, headers=PAGE_HEADERS)
    response.background = background
    return response


def _beginning(
    services: Services, caller: Principal, name: str, run_id: str, view: View
) -> FormDraft:
    """Return the draft that the address asks for; raises NoSuchPreset and RunNotFound."""
    if name:
        chosen = preset(name)
        return draft_from(chosen.spec, view, text=chosen.text)
    if not run_id:
        return draft_from(SMALL_RUN, view)
    with services.database.transaction() as session:
        spec = copy.deepcopy(dict(store.get_run(session, caller.project_id, run_id).spec))
    # A copy starts from the beginning: `fork` is the action that keeps the descent.
    spec.pop("lineage", None)
    return draft_from(spec, view)


def _submit(
    services: Services,
    caller: Principal,
    draft: FormDraft,
    key: str | None,
    background: BackgroundTasks,
) -> str:
    body = as_json(draft.document())
    # A page that was sent, gone back to and changed is another submission.
    once = f"{key}.{hashlib.sha256(body).hexdigest()[:16]}" if key else None
    request = request_key(caller, "/submit", once, body)
    admission = services.admission
    admitted = admission.submit(parse_spec(body, admission.accepted()), caller, request)
    if not admitted.is_replayed:
        background.add_task(services.task_queue.enqueue, [admitted.run_id])
    return admitted.run_id


def _check(services: Services, caller: Principal, draft: FormDraft) -> SpecCheck:
    """Return the plan of a draft, or what is wrong with it."""
    try:
        document = draft.document()
        admission = services.admission
        spec = parse_spec(as_json(document), admission.accepted())
        plan = admission.plan(spec, caller)
        return SpecCheck(plan=describe_plan(plan, now=utc_now()), document=document)
    except REJECTIONS as error:
        return _mistakes(error, draft)


def _mistakes(error: Exception, draft: FormDraft) -> SpecCheck:
    problems: tuple[SpecProblem, ...] = error.errors if isinstance(error, Problem) else ()
    if not problems:
        key, _, rest = str(error).partition(": ")
        # Sentences about one key begin with it, such as `data.dataset: There is no …`.
        is_about_key = KEY.fullmatch(key) is not None and bool(rest)
        pointer = f"/{key.replace('.', '/')}" if is_about_key else ""
        message = rest if is_about_key else str(error)
        problems = (SpecProblem(pointer=pointer, code="refused", message=message),)
    document: Document | None = None
    if not isinstance(error, TextRejected):
        document = draft.document()
    return SpecCheck(problems=problems, document=document)


def _page(  # noqa: PLR0913 (one per part of the page)
    request: Request,
    services: Services,
    draft: FormDraft,
    checked: SpecCheck,
    *,
    chosen: str,
    why: str = "",
    status: int = 200,
) -> Response:
    token = token_of(request, services)
    contents: Mapping[str, object] = submit_contents(draft, checked, token=token, chosen=chosen)
    return show_page("forms/submit", status=status, why=why, was_refused=status != 200, **contents)
