"""`/v1/runs/{id}/trajectories`: outcomes in a list, one rollout in full."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.cursor import read_cursor, sign_cursor
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.artifacts.errors import ArtifactNotFound, ArtifactRemoved
from api.results.artifacts.retention import require_trajectories
from api.results.artifacts.trajectories import (
    TrajectoryFilters,
    find_outcome,
    list_outcomes,
    outcome_facts,
    pass_threshold,
    read_trajectory,
)
from api.runs.errors import CursorRejected, RunNotFound
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.payloads.results.rollouts import RolloutList, RolloutWithTrajectory

router = APIRouter(prefix="/v1/runs/{run_id}/trajectories", tags=["results"], responses=PROBLEMS)

Text = Annotated[str | None, Field(max_length=300)]


class TrajectoryQuery(BaseModel):
    """Filters and page of the list; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    env: Text = None
    step: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    split: Literal["train", "eval"] | None = None
    decoding: Text = None
    status: OutcomeStatus | None = None
    task_key: Text = None
    failed: bool | None = None
    """True: graded rollouts that did not pass; false: those that did."""
    pattern: Text = None
    """Name of a failure pattern that the rollout shows, as found when it ended."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str | None, Field(max_length=1000)] = None

    def filters(self) -> TrajectoryFilters:
        """Return the filters without the page."""
        return TrajectoryFilters(**self.model_dump(exclude={"limit", "cursor"}))


@router.get(
    "",
    operation_id="list_trajectories",
    summary="List rollouts, newest step first",
    responses={**documented(KINDS[CursorRejected])},
)
def list_trajectories(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    query: Annotated[TrajectoryQuery, Query()],
) -> RolloutList:
    """Return one page of outcomes; `failed=true` selects graded ones that did not pass."""
    filters, limit = query.filters(), query.limit
    scope = {"run": run_id, **asdict(filters)}
    secret = services.cursor_secret
    after = None
    if query.cursor is not None:
        step, rollout_id = read_cursor(query.cursor, scope, secret=secret)
        after = (int(step), rollout_id)
    with open_run(services, caller, run_id) as (session, run):
        records = list_outcomes(session, run, filters, after=after, limit=limit + 1)
        threshold = pass_threshold(run)
    page, has_more = records[:limit], len(records) > limit
    position = [str(page[-1].step), page[-1].rollout_id] if has_more else None
    return RolloutList.of(
        as_list(
            [outcome_facts(outcome, threshold=threshold) for outcome in page],
            has_more=has_more,
            next_cursor=sign_cursor(position, scope, secret=secret) if position else None,
        )
    )


@router.get(
    "/{rollout_id:path}",
    operation_id="get_trajectory",
    summary="Get one rollout in full",
    responses={**documented(KINDS[RunNotFound], KINDS[ArtifactNotFound], KINDS[ArtifactRemoved])},
)
def get_trajectory(
    services: ServicesDep, caller: Reader, run_id: RunId, rollout_id: str
) -> RolloutWithTrajectory:
    """Return the outcome and, under `trajectory`, the full trajectory."""
    with open_run(services, caller, run_id) as (session, run):
        outcome = find_outcome(session, run.id, rollout_id)
        facts = outcome_facts(outcome, threshold=pass_threshold(run))
        require_trajectories(run)
    # Outside the session: reading the store may use the network.
    trajectory = read_trajectory(services.store, outcome)
    return RolloutWithTrajectory.model_validate(
        facts | {"file": facts["trajectory"], "trajectory": trajectory}
    )
