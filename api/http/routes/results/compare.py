"""`/v1/compare`: two runs, or two steps of one, task by task."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, Threshold, Verifier
from api.results.comparison.comparison import Point, build_comparison
from api.results.errors import NoLedger, NoSuchEval, NoSuchRescoring
from api.results.evals.report import VerdictOptions
from api.runs import store
from hillclimb.protocol.payloads.results.comparison import RunComparison
from hillclimb.protocol.payloads.results.compute import Amount

router = APIRouter(prefix="/v1/compare", tags=["results"], responses=PROBLEMS)

RunAtStep = Annotated[str, Field(pattern=r"^[^@]{1,100}(@[0-9]{1,9})?$")]


class CompareQuery(BaseModel):
    """The two evaluations, rule and k; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    a: RunAtStep
    """RUN or RUN@STEP; without a step the run's last evaluation."""
    b: RunAtStep
    """RUN or RUN@STEP, which is compared with `a`."""
    rule: Literal["v1", "v2"] = "v2"
    """Version of the verdicts' rule."""
    k: Annotated[int, Field(ge=1, le=256)] = 1
    """Compare pass@k."""
    threshold: Threshold | None = None
    """Rescore both evaluations: a rollout passes from this score on; null: as they were scored."""
    verifier: Verifier | None = None
    """Take the grades of the rescoring by this version of the verifier; null: those stored."""
    at: Amount | None = None
    """Compare the last evaluation of each run at or below the smaller of the two totals of this
    amount; null: the evaluations that `a` and `b` name."""

    @model_validator(mode="after")
    def _steps_are_named_once(self) -> Self:
        if self.at is not None and "@" in self.a + self.b:
            raise ValueError("`at` chooses the steps: leave @STEP out of `a` and `b`")
        return self


@router.get(
    "",
    operation_id="compare_runs",
    summary="Compare two runs",
    responses={**documented(KINDS[NoSuchEval], KINDS[NoSuchRescoring], KINDS[NoLedger])},
)
def compare_runs(
    services: ServicesDep, caller: Reader, query: Annotated[CompareQuery, Query()]
) -> RunComparison:
    """Return how evaluation b differs from evaluation a, over the tasks that both have.

    The difference of the resolved specs, and per decoding the paired verdicts overall and per
    environment, the tasks gained and lost with a rollout of each side, and the behaviour.
    """
    with services.database.transaction() as session:
        points = []
        for text in (query.a, query.b):
            run_id, _, step = text.partition("@")
            run = store.get_run(session, caller.project_id, run_id)
            points.append(Point(run=run, step=int(step) if step else None))
        options = VerdictOptions(**query.model_dump(exclude={"a", "b", "at"}))
        facts = build_comparison(session, points[0], points[1], options, at=query.at)
        return RunComparison.model_validate(facts)
