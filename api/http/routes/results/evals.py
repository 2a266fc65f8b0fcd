"""`/v1/runs/{id}/evals`: the eval table and the before/after report."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.payloads.results import describe_report
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, Threshold, Verifier, as_list, open_run
from api.results.errors import NoSuchEval, NoSuchRescoring
from api.results.evals.report import VerdictOptions, build_report
from api.results.evals.table import eval_table
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.evals import EvalList
from hillclimb.protocol.payloads.results.reports import ReportPayload

router = APIRouter(prefix="/v1/runs/{run_id}/evals", tags=["results"], responses=PROBLEMS)

Step = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ReportQuery(BaseModel):
    """Steps, rule and k of a comparison; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    before: Step | None = None
    """Step of the earlier evaluation; by default the first one."""
    after: Step | None = None
    """Step of the later evaluation; by default the last one."""
    rule: Literal["v1", "v2"] = "v2"
    """Version of the verdicts' rule."""
    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Compare pass@k."""
    threshold: Threshold | None = None
    """Rescore both evaluations: a rollout passes from this score on; null: as they were scored."""
    verifier: Verifier | None = None
    """Take the grades of the rescoring by this version of the verifier; null: those stored."""


@router.get(
    "",
    operation_id="list_evals",
    summary="Read the eval table",
    responses={**documented(KINDS[NoSuchRescoring])},
)
def list_evals(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    threshold: Annotated[
        Threshold | None, Query(description="Rescore: a rollout passes from this score on.")
    ] = None,
    verifier: Annotated[
        Verifier | None, Query(description="Take the grades of the rescoring by this version.")
    ] = None,
) -> EvalList:
    """Return every evaluation by step and decoding.

    Each has pass@1 and pass@n: overall, per environment, for seen and for held-out templates, with
    n, coverage, interval and bounds.
    """
    with open_run(services, caller, run_id) as (session, run):
        table = eval_table(session, run.id, threshold=threshold, verifier=verifier)
        return EvalList.of(as_list(table, threshold=threshold, verifier=verifier))


@router.get(
    "/report",
    operation_id="get_report",
    summary="Compare two evaluations",
    responses={**documented(KINDS[RunNotFound], KINDS[NoSuchEval], KINDS[NoSuchRescoring])},
)
def get_report(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    query: Annotated[ReportQuery, Query()],
) -> ReportPayload:
    """Return the paired comparison of two evaluations, by default the first and the last.

    Per decoding, overall and per environment: before, after, n, intervals, p-values, the change
    that as many tasks could show, the verdict, and the causes of failure on both sides. With k
    above 1, only decodings with as many rollouts per task.
    """
    with open_run(services, caller, run_id) as (session, run):
        options = VerdictOptions(**query.model_dump(exclude={"before", "after"}))
        facts = build_report(
            session, run.id, before=query.before, after=query.after, options=options
        )
        return describe_report(facts)
