"""Pages about several runs: comparisons, experiments, campaigns, issues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.admission.campaigns import store as campaigns
from api.admission.campaigns.errors import CampaignError
from api.admission.campaigns.table import build_table
from api.admission.experiments import store as experiments
from api.admission.experiments.errors import ExperimentError
from api.admission.experiments.figures import build_figures
from api.admission.experiments.results import build_results
from api.http.dashboard.studies.compare import VERDICT_TONES, compare_contents
from api.http.dashboard.studies.experiments import experiment_contents, learning_curves
from api.http.payloads.campaigns import describe_campaign, summarise_campaign
from api.http.payloads.experiments import describe_experiment, summarise_experiments
from api.http.problems import kind_of
from api.http.requests.context import Services, ServicesDep
from api.http.routes.web.dashboard import Visitor, redirect_to_login, show_page
from api.http.routes.web.run_pages import Contents, address_of
from api.results.comparison.comparison import Point, build_comparison
from api.results.errors import EvalError
from api.results.issues import store as issues
from api.results.issues.measure import Measuring
from api.results.issues.store import IssueFilters
from api.runs import store
from api.runs.errors import RunError
from api.tables.access.identity import Principal, Scope
from api.tables.studies.experiments import Experiment
from hillclimb.protocol.payloads.studies.experiments import ExperimentFigures, ExperimentResults
from hillclimb.protocol.payloads.studies.issues import IssuePayload

router = APIRouter(include_in_schema=False)

POINT = re.compile(r"([^@]{1,100})(?:@([0-9]{1,9}))?")
LIST_LIMIT = 50
CHANGELOG_LIMIT = 20
"""As many as the changelog of the API has."""
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
    comparison: Contents | None = None
    problem, status = "", 200
    if a and b:
        try:
            comparison = _compared(services, caller, (a, b), decoding)
        except (RunError, EvalError, ValueError) as error:
            problem, status = str(error), 404
    return show_page(
        "studies/compare", status=status, a=a, b=b, comparison=comparison, problem=problem
    )


@router.get("/experiments")
def experiments_page(
    request: Request, services: ServicesDep, caller: Visitor, before: Text = ""
) -> Response:
    """Show the experiments, newest first."""

    def build(session: Session, scope: str) -> Contents:
        last = experiments.get_experiment(session, scope, before) if before else None
        rows = experiments.list_experiments(session, scope, before=last, limit=LIST_LIMIT + 1)
        page = summarise_experiments(session, rows[:LIST_LIMIT])
        return {
            "experiments": page,
            "has_more": len(rows) > LIST_LIMIT,
            "is_later": bool(before),
        }

    return _show(request, services, caller, "studies/experiments", build)


# Before the page of an experiment, whose key can never be this word.
@router.get("/experiments/changelog")
def changelog_page(request: Request, services: ServicesDep, caller: Visitor) -> Response:
    """Show what was tried and what came of it: the newest experiments with verdicts and words."""

    def build(session: Session, scope: str) -> Contents:
        rows = experiments.list_experiments(session, scope, before=None, limit=CHANGELOG_LIMIT + 1)
        entries = [_entry(session, each) for each in rows[:CHANGELOG_LIMIT]]
        return {"entries": entries, "has_more": len(rows) > CHANGELOG_LIMIT}

    return _show(request, services, caller, "studies/changelog", build)


@router.get("/experiments/{key}")
def experiment_page(request: Request, services: ServicesDep, caller: Visitor, key: str) -> Response:
    """Show an experiment with its arms, verdict and learning curves."""

    def build(session: Session, scope: str) -> Contents:
        experiment = experiments.get_experiment(session, scope, key)
        figures = ExperimentFigures.of(build_figures(session, experiment, decoding=None))
        curves = learning_curves(figures.model_dump(mode="json")["arms"])
        return {**_entry(session, experiment), "figure": curves}

    return _show(request, services, caller, "studies/experiment", build)


def _entry(session: Session, experiment: Experiment) -> Contents:
    described = describe_experiment(session, experiment)
    results = ExperimentResults.of(build_results(session, experiment, decoding=None))
    return experiment_contents(described.model_dump(mode="json"), results.model_dump(mode="json"))


@router.get("/campaigns")
def campaigns_page(
    request: Request, services: ServicesDep, caller: Visitor, before: Text = ""
) -> Response:
    """Show the campaigns, newest first."""

    def build(session: Session, scope: str) -> Contents:
        last = campaigns.get_campaign(session, scope, before) if before else None
        rows = campaigns.list_campaigns(session, scope, before=last, limit=LIST_LIMIT + 1)
        page = [summarise_campaign(session, each) for each in rows[:LIST_LIMIT]]
        return {"campaigns": page, "has_more": len(rows) > LIST_LIMIT, "is_later": bool(before)}

    return _show(request, services, caller, "studies/campaigns", build)


@router.get("/campaigns/{campaign_id}")
def campaign_page(
    request: Request, services: ServicesDep, caller: Visitor, campaign_id: str
) -> Response:
    """Show a campaign: its table so far, and its cells."""

    def build(session: Session, scope: str) -> Contents:
        campaign = campaigns.get_campaign(session, scope, campaign_id)
        table = build_table(session, campaign)
        return {
            "campaign": describe_campaign(session, campaign),
            "table": table,
            "env_keys": sorted({key for row in table["data"] for key in row["envs"]}),
            "tones": VERDICT_TONES,
        }

    return _show(request, services, caller, "studies/campaign", build)


@router.get("/issues")
def issues_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    state: Literal["open", "closed", "all"] = "all",
    before: Text = "",
) -> Response:
    """Show the ledger of issues with their shares before and after."""

    def build(session: Session, scope: str) -> Contents:
        last = issues.get_issue(session, scope, before) if before else None
        filters = IssueFilters(state=state, severity=None, env_key=None)
        rows = issues.list_issues(session, scope, filters, before=last, limit=LIST_LIMIT + 1)
        measuring = Measuring(session)
        page = [IssuePayload.of(measuring.issue_facts(each)) for each in rows[:LIST_LIMIT]]
        return {"issues": page, "has_more": len(rows) > LIST_LIMIT, "state": state}

    return _show(request, services, caller, "studies/issues", build)


def _show(
    request: Request,
    services: Services,
    caller: Principal | None,
    template: str,
    build: Callable[[Session, str], Contents],
) -> Response:
    """Return a page about the caller's project; what it does not have is a page that says so."""
    if caller is None:
        return redirect_to_login(address_of(request))
    caller.require(Scope.RUNS_READ)
    try:
        with services.database.transaction() as session:
            return show_page(template, **build(session, caller.project_id))
    except (CampaignError, ExperimentError, EvalError) as error:
        kind = kind_of(error)
        return show_page("problem", status=kind.status.value, title=kind.title, detail=str(error))


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
