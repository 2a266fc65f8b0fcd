"""Clusters of runs and projects, their launch tries, costs, budgets and limits."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from api.clusters import budgets, store
from api.clusters.errors import NoBudget
from api.clusters.overview import overview
from api.http.payloads.clusters import describe_budget, describe_clusters, describe_project
from api.http.problems import INVALID, KINDS, MALFORMED, Problem, documented
from api.http.requests.context import Admin, Reader, ServicesDep, Writer
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.runs import store as runs
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables import ProjectLimits
from api.tables.access.grants.charging import GrantExhausted, charge_extension
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.clusters import ClusterList, ProjectClusters
from hillclimb.protocol.payloads.costs import BudgetPayload, LimitsPayload
from hillclimb.spec.section import WHOLE, Moment

router = APIRouter(prefix="/v1", tags=["clusters"])

Amount = Annotated[float, Field(ge=0.0, le=1e9, strict=True)]
REFUSALS = (KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID, MALFORMED)


ADDS_SOMETHING: JsonDict = {
    "anyOf": [
        {"required": [name], "properties": {name: {"exclusiveMinimum": 0}}}
        for name in ("usd", "hours")
    ]
}


class ExtendBudget(BaseModel):
    """An extension of a run's budget beyond its spec: of the dollars, of the hours or of both."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, json_schema_extra=ADDS_SOMETHING
    )

    usd: Annotated[Amount, Field(examples=[25.0])] = 0.0
    hours: Annotated[Amount, Field(examples=[2.0])] = 0.0

    @model_validator(mode="after")
    def _adds_something(self) -> Self:
        if self.usd == self.hours == 0.0:
            raise ValueError("nothing is added: set usd or hours above 0")
        return self


class NewLimits(LimitsPayload):
    """Limits to set for all runs of a project together; null: no limit."""

    model_config = ConfigDict(extra="forbid")

    usd: Amount | None = None
    hours: Amount | None = None
    max_clusters: Annotated[int, Field(ge=0, le=10_000, strict=True), WHOLE] = store.MAX_CLUSTERS
    """Clusters at once."""
    since: Moment | None = None
    """Time from which spending counts, not in the future; null: now; left out: unchanged."""


@router.get(
    "/runs/{run_id}/clusters",
    operation_id="list_clusters",
    summary="List the clusters of a run",
    responses=PROBLEMS,
)
def list_clusters(services: ServicesDep, caller: Reader, run_id: RunId) -> ClusterList:
    """Return every cluster of the run with its launch tries and its cost."""
    with open_run(services, caller, run_id) as (session, run):
        return describe_clusters(session, run, now=utc_now())


@router.get(
    "/clusters",
    operation_id="list_project_clusters",
    summary="List the clusters of the project",
    responses={**documented(*REFUSALS)},
)
def list_project_clusters(services: ServicesDep, caller: Reader) -> ProjectClusters:
    """Return the project's clusters and budget, and the cloud exclusions."""
    with services.database.transaction() as session:
        return describe_project(overview(session, caller.project_id, now=utc_now()))


@router.get(
    "/runs/{run_id}/budget",
    operation_id="get_budget",
    summary="Get the budgets and the cost of a run",
    responses=PROBLEMS,
)
def get_budget(services: ServicesDep, caller: Reader, run_id: RunId) -> BudgetPayload:
    """Return the budgets of the run and of its project, with the amounts used."""
    with open_run(services, caller, run_id) as (session, run):
        return describe_budget(session, run, now=utc_now())


@router.post(
    "/runs/{run_id}/budget",
    operation_id="extend_budget",
    summary="Extend the budget of a run",
    responses={**documented(*REFUSALS, KINDS[RunNotFound], KINDS[NoBudget], KINDS[GrantExhausted])},
)
def extend_budget(
    services: ServicesDep, caller: Writer, run_id: RunId, body: ExtendBudget
) -> BudgetPayload:
    """Add to the run's budget; a run that paused because it was used up can then be resumed."""
    with services.database.transaction() as session:
        run = runs.lock_run(session, run_id, project_id=caller.project_id)
        budgets.extend(
            session, run, usd=body.usd, hours=body.hours, granted_by=caller.actor, now=utc_now()
        )
        charge_extension(session, caller, usd=body.usd, hours=body.hours)
        return describe_budget(session, run, now=utc_now())


@router.get(
    "/limits",
    operation_id="get_limits",
    summary="Get the limits of the project",
    responses={**documented(*REFUSALS)},
)
def get_limits(services: ServicesDep, caller: Reader) -> LimitsPayload:
    """Return the limits of the caller's project."""
    with services.database.transaction() as session:
        return LimitsPayload.model_validate(budgets.limits_of(session, caller.project_id))


@router.put(
    "/limits",
    operation_id="set_limits",
    summary="Set the limits of the project",
    responses={**documented(*REFUSALS)},
)
def set_limits(services: ServicesDep, caller: Admin, body: NewLimits) -> LimitsPayload:
    """Replace the limits; existing clusters stay."""
    now = utc_now()
    with services.database.transaction() as session:
        old_since = budgets.limits_of(session, caller.project_id).since
        since = body.since if "since" in body.model_fields_set else old_since
        if since is not None and since > now and since != old_since:
            raise Problem(
                INVALID, f"since is in the future, no spending would count until then: {since}"
            )
        limits = budgets.set_limits(
            session,
            ProjectLimits(
                project_id=caller.project_id,
                usd=body.usd,
                hours=body.hours,
                max_clusters=body.max_clusters,
                since=since or now,
                set_by=caller.actor,
            ),
        )
        return LimitsPayload.model_validate(limits)
