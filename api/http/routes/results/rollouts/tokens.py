"""`/v1/runs/{id}/tokens`: the tokens of one rollout, a page at a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.payloads.results import token_page
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.errors import ArtifactNotFound, ArtifactRemoved
from api.results.artifacts.retention import require_trajectories
from api.results.artifacts.rollouts.tokens import read_tokens
from api.results.artifacts.trajectories import find_outcome
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.rollouts import TokenPage

router = APIRouter(prefix="/v1/runs/{run_id}/tokens", tags=["results"], responses=PROBLEMS)

Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class TokenQuery(BaseModel):
    """The tokens of a page; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    turn: Number | None = None
    """Only this turn of the model, from 1, with the environment's answer; 0: the prompt."""
    start: Number = 0
    """Position of the first token; `next_start` of the page before."""
    limit: Annotated[int, Field(ge=1, le=2000)] = 500


@router.get(
    "/{rollout_id:path}",
    operation_id="get_tokens",
    summary="Get the tokens of one rollout",
    responses={**documented(KINDS[RunNotFound], KINDS[ArtifactNotFound], KINDS[ArtifactRemoved])},
)
def get_tokens(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    rollout_id: str,
    query: Annotated[TokenQuery, Query()],
) -> TokenPage:
    """Return tokens with log-probs of engine and learner, entropy, mask and weight version.

    Gaps and entropies are there for the rollouts that the learner learned from; for others
    `learner.sentence` says why there are none.
    """
    with open_run(services, caller, run_id) as (session, run):
        outcome, spec = find_outcome(session, run.id, rollout_id), run.spec
        require_trajectories(run)
    # Outside the session: reading the store may use the network.
    report = read_tokens(services.store, outcome, spec)
    return token_page(outcome, report, turn=query.turn, start=query.start, limit=query.limit)
