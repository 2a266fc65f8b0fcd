"""Payloads of the before/after report."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.evals import EarlyStopPayload

Span = tuple[float, float]
"""Low and high end."""


class FailurePayload(Payload):
    """One cause of failed rollouts, with its numbers before and after."""

    meaning: str
    """Words that complete "the policy …"."""
    before: int
    after: int


class RatesPayload(Payload):
    """pass@k of two evaluations over a group of tasks; rates are in [0, 1]."""

    before: float | None
    after: float | None
    before_interval: Span
    """95 % interval."""
    after_interval: Span
    before_bounds: Span
    """The rate if all rollouts without a grade had failed, and if all had passed."""
    after_bounds: Span
    before_coverage: float
    """Share of rollouts with a grade."""
    after_coverage: float
    delta: float | None
    """Mean change over the tasks graded on both sides."""
    n: int
    """Tasks graded on both sides."""
    num_gained: int
    num_lost: int


class ChangePayload(RatesPayload):
    """An estimate of a change without a test: it has no p-value and no verdict."""

    k: int
    """The figures are pass@k."""


class BreakdownRow(ChangePayload):
    """The change in the tasks of one difficulty or modality."""

    pass_at_n: ChangePayload | None
    """With n the rollouts per task of both evaluations; null where k is n."""


class ComparisonPayload(RatesPayload):
    """The paired comparison of two evaluations over a group of tasks."""

    p_value: float | None
    """Two-sided, as if nobody had looked before and nothing else were compared."""
    p_adjusted: float | None
    """What the verdict reads: after the rule's corrections; null under v1."""
    e_value: float | None
    """Evidence in the direction of change, valid at any look; null under v1."""
    detectable: float | None
    """Smallest gain that as many tasks show with power 0.8; null if they show none."""
    num_tasks_to_decide: int | None
    """Tasks that would show the observed change with power 0.8; null without a change."""
    verdict: str
    """`improved`, `regressed`, `saturated`, `failing`, `flat`, `inconclusive` or `no_eval`."""
    pass_at_n: ChangePayload | None = None
    """With n the rollouts per task of both evaluations; null where k is n."""


class EnvComparison(ComparisonPayload):
    """The comparison in one environment."""

    failures: dict[str, FailurePayload]
    """By cause."""


class DecodingComparison(EnvComparison):
    """The comparison over all tasks under one decoding."""

    temperature: float
    n_samples_per_prompt: int
    pass_threshold: float
    before_stopped_early: EarlyStopPayload | None
    """How the earlier evaluation ended before all of its tasks; null: it is complete."""
    after_stopped_early: EarlyStopPayload | None
    """The same of the later one. Both sides are compared over the tasks that both have."""
    seen_templates: ComparisonPayload
    held_out_templates: ComparisonPayload
    difficulties: dict[str, BreakdownRow]
    """By difficulty, `1` to `3`; `unknown` for tasks without one."""
    modalities: dict[str, BreakdownRow]
    """By modality; `unknown` for tasks without one."""


class ReportPayload(Payload):
    """The before/after report; each decoding's comparison stands under the decoding's name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[
        str, Annotated[DecodingComparison | Any, Field(union_mode="left_to_right")]
    ] = Field(init=False)

    object: Literal["report"] = "report"
    run_id: str
    before_step: int
    after_step: int
    rule: str
    """Version of the rule of the verdicts."""
    k: int = 1
    """The figures are pass@k."""
    threshold: float | None = None
    """Score from which a rollout passes, by the request; null: each evaluation's own."""
    verifier: str | None = None
    """Version of the verifier of the rescoring that was asked for; null: the grades as stored."""
    num_candidates: int
    """Evaluations from which the later one may have been chosen; 1 for the last planned one."""
    decodings: list[str]
    environments: dict[str, dict[str, EnvComparison]]
    """By environment and decoding."""
    training_seconds: float

    @property
    def comparisons(self) -> dict[str, DecodingComparison]:
        """The comparisons over all tasks, by decoding."""
        extra = self.__pydantic_extra__
        return {
            name: comparison
            for name in self.decodings
            if isinstance(comparison := extra.get(name), DecodingComparison)
        }


class PassCountsPayload(Payload):
    """Numbers that a row of a printed table may stand for."""

    num_tasks: int
    before: int
    """Tasks that passed."""
    after: int


class PossibleVerdictsPayload(Payload):
    """A row of a printed table, with all that its pairings allow."""

    name: str
    """The environment; `all` for the rates over all tasks."""
    before: str
    """As printed."""
    after: str
    counts: list[PassCountsPayload]
    """Empty for rates over all tasks that are not those of the rows."""
    num_lost: tuple[int, int] | None
    """Fewest and most tasks that passed before and failed after; null without counts."""
    p_value: Span | None
    """Least and largest two-sided p, for this row alone."""
    p_adjusted: Span | None
    """The same after the rule's corrections; null under v1."""
    verdicts: list[str]
    """Every word that a pairing allows, that of the most significant one first."""


class PrintedTablePayload(Payload):
    """The verdicts that a printed table of pass rates allows."""

    object: Literal["printed_table"] = "printed_table"
    rule: str
    rows: list[PossibleVerdictsPayload]
    overall: PossibleVerdictsPayload | None
    """Null where the table prints no rates over all tasks, and does not determine them."""
