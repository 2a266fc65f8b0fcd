"""`/v1/runs/{id}/rescorings`: stored rollouts graded again by the present verifier."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, ServicesDep, Writer
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.artifacts.errors import ArtifactRemoved
from api.results.errors import NotRescorable, RescoringBusy
from api.results.rescoring.rescore import RescoringScope, list_rescorings, rescore
from api.runs.errors import RunNotFound, SpecOutdated
from api.runs.journal import utc_now
from hillclimb.protocol.payloads.results.evals import RescoringList, RescoringPayload
from hillclimb.spec.section import WHOLE

router = APIRouter(prefix="/v1/runs/{run_id}/rescorings", tags=["results"], responses=PROBLEMS)


class RescoringRequest(BaseModel):
    """Verifier and rollouts of a rescoring; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    verifier: Literal["present"]
    """Version of the verifier: that of this service."""
    split: Literal["train", "eval"] = "eval"
    """Split of the rollouts."""
    step: Annotated[int, Field(ge=0, le=2**31 - 1, strict=True), WHOLE] | None = None
    """Only rollouts of this step; null: of all steps."""


@router.post(
    "",
    operation_id="rescore_run",
    summary="Grade stored rollouts again",
    responses={
        **documented(
            KINDS[RunNotFound],
            KINDS[ArtifactRemoved],
            KINDS[NotRescorable],
            KINDS[RescoringBusy],
            KINDS[SpecOutdated],
            INVALID,
        )
    },
)
def rescore_run(
    services: ServicesDep, caller: Writer, run_id: RunId, body: RescoringRequest
) -> RescoringPayload:
    """Replay the tool calls of stored rollouts in fresh worlds, and run the present verifier.

    Only for the miniature apps, whose worlds follow from the task. A rollout of which an answer
    differs from the stored one is not replayable and gets no grade. The new grades stand beside the
    outcomes; the same request again replaces them by the same.
    """
    scope = RescoringScope(split=body.split, step=body.step)
    facts = rescore(
        services.database, services.store, caller.project_id, run_id, scope, now=utc_now()
    )
    return RescoringPayload.of(facts)


@router.get("", operation_id="list_rescorings", summary="List the rescorings of a run")
def read_rescorings(services: ServicesDep, caller: Reader, run_id: RunId) -> RescoringList:
    """Return the rescorings by version of the verifier, newest first."""
    with open_run(services, caller, run_id) as (session, run):
        return RescoringList.of(as_list(list_rescorings(session, run.id)))
