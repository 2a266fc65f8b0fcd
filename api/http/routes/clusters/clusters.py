"""`/v1/runs/{id}/clusters` and budgets: what was rented, what was tried, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from sqlalchemy.orm import Session

from api.clusters import budgets, cost, store
from api.clusters.errors import NoBudget
from api.clusters.overview import ClusterCost, overview, status_message
from api.clusters.store import ClusterState
from api.http.problems import INVALID, KINDS, MALFORMED, Problem, documented
from api.http.requests.context import Admin, Reader, ServicesDep, Writer
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.runs import store as runs
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from api.tables import Cluster, LaunchTry, ProjectLimits, Run
from api.tables.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.costs import AllowancePayload, CloudExclusionPayload, SpentPayload

router = APIRouter(prefix="/v1", tags=["clusters"])

Amount = Annotated[float, Field(ge=0.0, le=1e9)]
REFUSALS = (KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID, MALFORMED)


class OfferPayload(Payload):
    """One try at getting machines."""

    at: datetime
    launch: int
    seconds: float | None
    infra: str
    region: str | None
    sku: str | None
    hourly_usd: float | None
    outcome: str
    error_class: str | None
    message: str | None


class ClusterPayload(Payload):
    """One cluster, and what was tried to get it."""

    object: Literal["cluster"] = "cluster"
    id: str
    name: str
    attempt_id: str
    state: ClusterState
    cause: str | None
    message: str | None
    """Why it ends or has ended, and what it waits for."""
    infra: str | None
    region: str | None
    sku: str | None
    num_nodes: int
    hourly_usd: float | None
    created_at: datetime
    running_at: datetime | None
    wall_limit_at: datetime | None
    terminated_at: datetime | None
    spent: SpentPayload
    offers: list[OfferPayload]


class ClusterList(Payload):
    """The clusters of a run, oldest first, and what they cost together."""

    object: Literal["list"] = "list"
    data: list[ClusterPayload]
    spent: SpentPayload


class ProjectClusterPayload(Payload):
    """One cluster of a project."""

    object: Literal["cluster"] = "cluster"
    id: str
    name: str
    run_id: str
    run_name: str
    state: ClusterState
    cause: str | None
    message: str | None
    """Why it ends or has ended, and what it waits for."""
    infra: str | None
    region: str | None
    sku: str | None
    num_nodes: int
    hourly_usd: float | None
    created_at: datetime
    running_at: datetime | None
    terminated_at: datetime | None
    spent: SpentPayload


class ProjectClusters(Payload):
    """The clusters that a project rents now, and their cost."""

    object: Literal["list"] = "list"
    data: list[ProjectClusterPayload]
    """Those that are not known to be gone, newest first."""
    past: list[ProjectClusterPayload]
    """The newest of those that are gone."""
    spent: SpentPayload
    """By all clusters there ever were."""
    hourly_usd: float | None
    """Of all that is paid for now; null while a price is not known."""
    budget: AllowancePayload | None
    max_clusters: int
    exclusions: list[CloudExclusionPayload]
    warning: str | None
    """That nobody has looked after them for minutes, and what to do; null: somebody does."""


class BudgetPayload(Payload):
    """The budgets that bound a run."""

    data: list[AllowancePayload]
    spent: SpentPayload
    """By this run alone."""


class ExtendBudget(BaseModel):
    """More for a run than its spec gives."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    usd: Amount = 0.0
    hours: Amount = 0.0

    @model_validator(mode="after")
    def _adds_something(self) -> Self:
        if self.usd == self.hours == 0.0:
            raise ValueError("nothing is added: give usd or hours, above 0")
        return self


class LimitsPayload(Payload):
    """Limits of all runs of a project together; null: no limit."""

    model_config = ConfigDict(extra="forbid", from_attributes=True, use_attribute_docstrings=True)

    usd: Amount | None = None
    hours: Amount | None = None
    max_clusters: Annotated[int, Field(ge=0, le=10_000)] = store.MAX_CLUSTERS
    """Clusters at once."""
    since: AwareDatetime | None = None
    """Spending before this, which is no moment to come, does not count; null: from now on; left
    out: as it was."""


@router.get(
    "/runs/{run_id}/clusters",
    operation_id="list_clusters",
    summary="What was rented for a run, and what was tried",
    responses=PROBLEMS,
)
def list_clusters(services: ServicesDep, caller: Reader, run_id: RunId) -> ClusterList:
    """Return every cluster of the run with its ledger of offers and its cost."""
    now = utc_now()
    with open_run(services, caller, run_id) as (session, run):
        clusters = store.of_run(session, run.id)
        ledger = store.launch_tries_of(session, [cluster.id for cluster in clusters])
        data = [_cluster(cluster, ledger, now=now) for cluster in clusters]
        spent = cost.total(cost.of_cluster(cluster, now=now) for cluster in clusters)
    return ClusterList(data=data, spent=SpentPayload.model_validate(spent))


@router.get(
    "/clusters",
    operation_id="list_project_clusters",
    summary="What the project rents, and what it has cost",
    responses={**documented(*REFUSALS)},
)
def list_project_clusters(services: ServicesDep, caller: Reader) -> ProjectClusters:
    """Return the project's clusters, its budget, and what was learnt of the clouds."""
    with services.database.transaction() as session:
        clusters = overview(session, caller.project_id, now=utc_now())
        return ProjectClusters(
            data=[_rented(each) for each in clusters.live],
            past=[_rented(each) for each in clusters.past],
            spent=SpentPayload.model_validate(clusters.spent),
            hourly_usd=clusters.hourly_usd,
            budget=None
            if clusters.budget is None
            else AllowancePayload.model_validate(clusters.budget),
            max_clusters=clusters.max_clusters,
            exclusions=[CloudExclusionPayload.model_validate(each) for each in clusters.exclusions],
            warning=clusters.warning,
        )


@router.get(
    "/runs/{run_id}/budget",
    operation_id="get_budget",
    summary="What a run may cost and has cost",
    responses=PROBLEMS,
)
def get_budget(services: ServicesDep, caller: Reader, run_id: RunId) -> BudgetPayload:
    """Return the budgets of the run and of its project, with what is used."""
    with open_run(services, caller, run_id) as (session, run):
        return _budget(session, run)


@router.post(
    "/runs/{run_id}/budget",
    operation_id="extend_budget",
    summary="Give a run more",
    responses={**documented(*REFUSALS, KINDS[RunNotFound], KINDS[NoBudget])},
)
def extend_budget(
    services: ServicesDep, caller: Writer, run_id: RunId, body: ExtendBudget
) -> BudgetPayload:
    """Add to the run's budget; a run that rests because it was used up can then be resumed."""
    with services.database.transaction() as session:
        run = runs.lock_run(session, run_id, project_id=caller.project_id)
        budgets.extend(
            session, run, usd=body.usd, hours=body.hours, granted_by=caller.actor, now=utc_now()
        )
        return _budget(session, run)


@router.get(
    "/limits",
    operation_id="get_limits",
    summary="What the project's runs may use together",
    responses={**documented(*REFUSALS)},
)
def get_limits(services: ServicesDep, caller: Reader) -> LimitsPayload:
    """Return the limits of the caller's project."""
    with services.database.transaction() as session:
        return LimitsPayload.model_validate(budgets.limits_of(session, caller.project_id))


@router.put(
    "/limits",
    operation_id="set_limits",
    summary="Set what the project's runs may use together",
    responses={**documented(*REFUSALS)},
)
def set_limits(services: ServicesDep, caller: Admin, body: LimitsPayload) -> LimitsPayload:
    """Replace the limits; clusters that are there already stay."""
    now = utc_now()
    with services.database.transaction() as session:
        old_since = budgets.limits_of(session, caller.project_id).since
        since = body.since if "since" in body.model_fields_set else old_since
        if since is not None and since > now and since != old_since:
            raise Problem(INVALID, f"since is to come, and nothing would count until then: {since}")
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


def _rented(cluster_cost: ClusterCost) -> ProjectClusterPayload:
    mine = ("object", "run_name", "message", "spent")
    names = [name for name in ProjectClusterPayload.model_fields if name not in mine]
    return ProjectClusterPayload(
        **{name: getattr(cluster_cost.cluster, name) for name in names},
        run_name=cluster_cost.run.name,
        message=status_message(cluster_cost.cluster),
        spent=SpentPayload.model_validate(cluster_cost.spent),
    )


def _cluster(cluster: Cluster, ledger: Sequence[LaunchTry], *, now: datetime) -> ClusterPayload:
    facts = {
        name: getattr(cluster, name)
        for name in ClusterPayload.model_fields
        if name not in ("object", "message", "spent", "offers")
    }
    return ClusterPayload(
        **facts,
        message=status_message(cluster),
        spent=SpentPayload.model_validate(cost.of_cluster(cluster, now=now)),
        offers=[OfferPayload.model_validate(o) for o in ledger if o.cluster_id == cluster.id],
    )


def _budget(session: Session, run: Run) -> BudgetPayload:
    now = utc_now()
    bounds = budgets.allowances(session, run, now=now)
    spent = budgets.spent_by_run(session, run.id, now=now)
    return BudgetPayload(
        data=[AllowancePayload.model_validate(each) for each in bounds],
        spent=SpentPayload.model_validate(spent),
    )
