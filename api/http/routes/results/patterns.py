"""`/v1/runs/{id}/patterns`: failure patterns before and after."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, ServicesDep, Writer
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.artifacts.errors import ArtifactRemoved
from api.results.comparison.patterns import PatternFilters, build_patterns
from api.results.errors import MixedDetectors, NoSuchEval, NotRescorable, RescoringBusy
from api.results.rescoring.rescore import RescoringScope
from api.results.rescoring.search import list_searches, search_run
from api.runs.errors import RunNotFound
from api.runs.journal import utc_now
from hillclimb.protocol.payloads.results.patterns import (
    PatternReport,
    PatternSearchList,
    PatternSearchResult,
)
from hillclimb.spec.section import WHOLE

router = APIRouter(prefix="/v1/runs/{run_id}/patterns", tags=["results"], responses=PROBLEMS)


class PatternQuery(BaseModel):
    """Evaluations and rollouts to look at; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    before: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """Step of the earlier evaluation; by default the first."""
    after: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """Step of the later one; by default the last."""
    decoding: Annotated[str | None, Field(max_length=40)] = None
    env: Annotated[str | None, Field(max_length=200)] = None
    """Only this environment."""
    version: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """Version of the detectors; by default the newest that searched all rollouts."""

    def filters(self) -> PatternFilters:
        """Return the filters."""
        return PatternFilters(
            before=self.before,
            after=self.after,
            decoding=self.decoding,
            env_key=self.env,
            version=self.version,
        )


@router.get(
    "",
    operation_id="get_patterns",
    summary="Read the failure patterns before and after",
    responses={**documented(KINDS[NoSuchEval], KINDS[MixedDetectors])},
)
def get_patterns(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    query: Annotated[PatternQuery, Query()],
) -> PatternReport:
    """Return how often rollouts of two evaluations show each pattern, and what changed.

    By default of the first and the last evaluation. Exemplars are rollouts of the later one. One
    version of the detectors searched them all: findings of several are refused.
    """
    with open_run(services, caller, run_id) as (session, run):
        return PatternReport.of(build_patterns(session, run.id, query.filters()))


class SearchRequest(BaseModel):
    """Detectors and rollouts of a search; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    detectors: Literal["present"]
    """Version of the detectors: that of this service."""
    split: Literal["train", "eval"] = "eval"
    """Split of the rollouts."""
    step: Annotated[int, Field(ge=0, le=2**31 - 1, strict=True), WHOLE] | None = None
    """Only rollouts of this step; null: of all steps."""


@router.post(
    "/searches",
    operation_id="search_patterns",
    summary="Search stored rollouts for failure patterns again",
    responses={
        **documented(
            KINDS[RunNotFound],
            KINDS[ArtifactRemoved],
            KINDS[NotRescorable],
            KINDS[RescoringBusy],
            INVALID,
        )
    },
)
def search_patterns(
    services: ServicesDep, caller: Writer, run_id: RunId, body: SearchRequest
) -> PatternSearchResult:
    """Run the present detectors over stored trajectories that another version searched, or none.

    Also for imported runs and those of older trainers. What they find stands beside the outcomes;
    the same request again replaces it by the same.
    """
    scope = RescoringScope(split=body.split, step=body.step)
    facts = search_run(
        services.database, services.store, caller.project_id, run_id, scope, now=utc_now()
    )
    return PatternSearchResult.of(facts)


@router.get("/searches", operation_id="list_pattern_searches", summary="List searches of a run")
def read_searches(services: ServicesDep, caller: Reader, run_id: RunId) -> PatternSearchList:
    """Return the searches of stored rollouts, the newest version of the detectors first."""
    with open_run(services, caller, run_id) as (session, run):
        return PatternSearchList.of(as_list(list_searches(session, run.id)))
