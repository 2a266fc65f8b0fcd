"""`/v1/runs/{id}/signal`: what training can learn from each environment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.signal import SignalFilters, build_signal
from hillclimb.protocol.payloads.results.signal import SignalReportPayload

router = APIRouter(prefix="/v1/runs/{run_id}/signal", tags=["results"], responses=PROBLEMS)

Window = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="The newest so many steps.")]


@router.get("", operation_id="get_signal", summary="Read the signal report")
def get_signal(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    window: Window = None,
    env: Annotated[str | None, Query(max_length=200, description="Only this environment.")] = None,
) -> SignalReportPayload:
    """Return per environment the share of groups and steps with signal, and what they say.

    Also the variance per prompt, the shares of groups that pass or fail as a whole, the trend of
    the mean score, and the reading in plain words.
    """
    with open_run(services, caller, run_id) as (session, run):
        filters = SignalFilters(window=window, env_key=env)
        return SignalReportPayload.of(build_signal(session, run.id, filters))
