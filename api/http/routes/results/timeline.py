"""`/v1/runs/{id}/timeline`: when the parts of a run or a step took place, as a trace."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.timeline.read import draw_timeline, read_rows
from api.runs.journal import utc_now
from hillclimb.protocol.payloads.events import Timeline

router = APIRouter(prefix="/v1/runs/{run_id}/timeline", tags=["results"], responses=PROBLEMS)

Step = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get(
    "",
    operation_id="get_timeline",
    summary="Read the timeline as a trace",
    responses={**documented(KINDS[ArtifactNotFound])},
)
def get_timeline(
    services: ServicesDep, caller: Reader, run_id: RunId, response: Response, step: Step = None
) -> Timeline:
    """Return a trace in the Trace Event Format, which ui.perfetto.dev opens.

    Of a step: phases, the learner's parts, every rollout with its turns and tool calls by rollout
    worker, and the load of each engine. Without `step`: statuses and phases of the whole run.
    """
    with open_run(services, caller, run_id) as (session, run):
        rows = read_rows(session, run, step=step, now=utc_now())
    # Outside the session: reading the store may use the network.
    timeline = draw_timeline(services.store, rows)
    part = "" if step is None else f".step-{step}"
    name = f'attachment; filename="{run_id}{part}.timeline.json"'
    response.headers["Content-Disposition"] = name
    return Timeline.of(timeline)
