"""`/v1/runs/{id}/patterns`: failure patterns before and after."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.comparison.patterns import PatternFilters, build_patterns
from api.results.errors import MixedDetectors, NoSuchEval
from hillclimb.protocol.payloads.results.patterns import PatternReport

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
