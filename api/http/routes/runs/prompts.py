"""`/v1/runs/{id}/prompts`: what the agents of a run read before their first turn."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.prompts import read_prompts
from api.results.prompts import newest_prompts
from api.runs.errors import RunNotFound

router = APIRouter(prefix="/v1/runs/{run_id}/prompts", tags=["results"], responses=PROBLEMS)


class PromptQuery(BaseModel):
    """Keys of the prompts stored in full; another key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    env: Annotated[str | None, Field(max_length=300)] = None
    """Only this environment's."""
    task: Annotated[str | None, Field(max_length=300)] = None
    """Only this task's."""


@router.get(
    "",
    operation_id="get_prompts",
    summary="See what the agents read first",
    responses={**documented(KINDS[RunNotFound], KINDS[ArtifactNotFound])},
)
def get_prompts(
    services: ServicesDep, caller: Reader, run_id: RunId, query: Annotated[PromptQuery, Query()]
) -> dict[str, Any]:
    """Return hashes and numbers of tokens per environment, and some prompts in full.

    Of the newest attempt. A training run keeps the longest prompt of each environment, a run of
    kind `preview` those that it was asked for.
    """
    with open_run(services, caller, run_id) as (session, run):
        report = newest_prompts(session, run.id)
        if report is None:
            raise ArtifactNotFound(
                f"Run {run_id} has told nothing of its prompts yet: its trainer does so before the"
                " first rollout."
            )
        facts = dict(report.data)
        place = {"run_id": run.id, "attempt": report.attempt, "at": report.at}
    # Outside the session: the store may be across a network.
    texts = read_prompts(services.store, run_id, facts["file"])
    previews = [
        text
        for text in texts
        if query.env in (None, text["env_key"]) and query.task in (None, text["task_key"])
    ]
    return {"object": "prompts", **place, **facts, "texts": previews}
