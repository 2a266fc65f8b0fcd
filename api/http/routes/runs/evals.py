"""`/v1/runs/{id}/evals`: the eval table and the before/after report."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from api.http.payloads.results import describe_report
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.errors import NoSuchEval
from api.results.evals.report import build_report
from api.results.evals.table import eval_table
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.evals import EvalList
from hillclimb.protocol.payloads.results.reports import ReportPayload

router = APIRouter(prefix="/v1/runs/{run_id}/evals", tags=["results"], responses=PROBLEMS)

RuleName = Annotated[Literal["v1", "v2"], Query(description="Version of the verdicts' rule.")]
PassK = Annotated[int, Query(ge=1, le=256, description="Compare pass@k.")]
Step = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Step of an evaluation.")]


@router.get("", operation_id="list_evals", summary="Read the eval table")
def list_evals(services: ServicesDep, caller: Reader, run_id: RunId) -> EvalList:
    """Return every evaluation by step and decoding.

    Each has pass@1 and pass@n: overall, per environment, for seen and for held-out templates, with
    n, coverage, interval and bounds.
    """
    with open_run(services, caller, run_id) as (session, run):
        return EvalList.of(as_list(eval_table(session, run.id)))


@router.get(
    "/report",
    operation_id="get_report",
    summary="Compare two evaluations",
    responses={**documented(KINDS[RunNotFound], KINDS[NoSuchEval])},
)
def get_report(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    before: Step = None,
    after: Step = None,
    rule: RuleName = "v2",
    k: PassK = 1,
) -> ReportPayload:
    """Return the paired comparison of two evaluations, by default the first and the last.

    Per decoding, overall and per environment: before, after, n, intervals, p-values, the change
    that as many tasks could show, the verdict, and the causes of failure on both sides. With k
    above 1, only decodings with as many rollouts per task.
    """
    with open_run(services, caller, run_id) as (session, run):
        return describe_report(
            build_report(session, run.id, before=before, after=after, rule=rule, k=k)
        )
