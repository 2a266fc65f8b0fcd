"""`/v1/runs/{id}/prompts`: the initial prompts of a run's agents."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.prompts import read_prompts
from api.results.preflight.prompts import newest_prompts
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.prompts import PromptsPayload

router = APIRouter(prefix="/v1/runs/{run_id}/prompts", tags=["results"], responses=PROBLEMS)


class PromptQuery(BaseModel):
    """Filters of the prompts stored in full; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    env: Annotated[str | None, Field(max_length=300)] = None
    """Only this environment's."""
    task: Annotated[str | None, Field(max_length=300)] = None
    """Only this task's."""


@router.get(
    "",
    operation_id="get_prompts",
    summary="Get the initial prompts of a run",
    responses={**documented(KINDS[RunNotFound], KINDS[ArtifactNotFound])},
)
def get_prompts(
    services: ServicesDep, caller: Reader, run_id: RunId, query: Annotated[PromptQuery, Query()]
) -> PromptsPayload:
    """Return hashes and numbers of tokens per environment, and some prompts in full.

    Of the newest attempt. A training run stores the longest prompt of each environment, a run of
    kind `preview` those that its spec requests.
    """
    with open_run(services, caller, run_id) as (session, run):
        report = newest_prompts(session, run.id)
        if report is None:
            raise ArtifactNotFound(
                f"Run {run_id} has reported no prompts yet: its trainer does so before the first"
                " rollout."
            )
        facts = dict(report.data)
        place = {"run_id": run.id, "attempt": report.attempt, "at": report.at}
    # Outside the session: reading the store may use the network.
    texts = read_prompts(services.store, run_id, facts["file"])
    previews = [
        text
        for text in texts
        if query.env in (None, text["env_key"]) and query.task in (None, text["task_key"])
    ]
    return PromptsPayload.model_validate({**place, **facts, "texts": previews})
