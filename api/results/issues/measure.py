"""The figures of issues: shares before and after, test and status, computed from the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from api.results.comparison.searches import choose_version
from api.results.errors import MixedDetectors
from api.results.evals.store import list_evals
from api.results.issues.symptoms import count_symptom, is_pattern
from api.tables import Eval, Issue
from hillclimb.stats.pass_rate import PassRate
from hillclimb.stats.trajectories.symptoms import SYMPTOMS
from hillclimb.stats.verdicts.issue_rule import (
    ISSUE_RULE,
    IssueStatus,
    SymptomChange,
    SymptomCount,
    judge_symptom,
)

COLUMNS = (
    "id",
    "number",
    "title",
    "severity",
    "description",
    "impact",
    "symptom",
    "env_key",
    "decoding",
    "created_at",
    "created_by",
    "updated_at",
    "closed_at",
    "closed_by",
    "resolution",
)
"""What a person said, and when."""


@dataclass(slots=True)
class Measuring:
    """Measures several issues; what two of them share is read once."""

    session: Session
    _evals: dict[str, Sequence[Eval]] = field(default_factory=dict)
    _counts: dict[tuple[object, ...], list[SymptomCount]] = field(default_factory=dict)

    def issue_facts(self, issue: Issue) -> dict[str, Any]:
        """Return an issue as JSON with its figures."""
        return {
            "object": "issue",
            **{name: getattr(issue, name) for name in COLUMNS},
            "definition": SYMPTOMS[issue.symptom],
            "state": "open" if issue.closed_at is None else "closed",
            "baseline": _place(issue.baseline_run_id, issue.baseline_step),
            "after": _place(issue.after_run_id, issue.after_step),
            "measured": self._measured(issue),
        }

    def _measured(self, issue: Issue) -> dict[str, Any]:
        before, after = self._pair(issue)
        evals = [each for each in (before, after) if each is not None]
        version = None
        if is_pattern(issue.symptom):
            try:
                version = choose_version(self.session, evals, env_key=issue.env_key)
            except MixedDetectors as error:
                return _facts(judge_symptom([], []), None, before, after, why=str(error))
        sides = [
            [] if each is None else self._count(each, issue, version) for each in (before, after)
        ]
        why = None
        if before is None:
            why = "the evaluation before has no such decoding"
        elif after is None:
            why = (
                "there is no evaluation after it yet"
                if issue.after_run_id is None
                else "the two evaluations share no such decoding"
            )
        return _facts(judge_symptom(*sides), version, before, after, why=why)

    def _pair(self, issue: Issue) -> tuple[Eval | None, Eval | None]:
        """Return the evaluations under the issue's decoding, or the first that both have."""
        before = self._at(issue.baseline_run_id, issue.baseline_step, issue.decoding)
        if issue.after_run_id is None or issue.after_step is None:
            return next(iter(before.values()), None), None
        after = self._at(issue.after_run_id, issue.after_step, issue.decoding)
        shared = next((name for name in before if name in after), None)
        if shared is None:
            return next(iter(before.values()), None), None
        return before[shared], after[shared]

    def _at(self, run_id: str, step: int, decoding: str | None) -> dict[str, Eval]:
        if run_id not in self._evals:
            self._evals[run_id] = list_evals(self.session, run_id)
        return {
            each.decoding: each
            for each in self._evals[run_id]
            if each.step == step and decoding in (None, each.decoding)
        }

    def _count(self, evaluation: Eval, issue: Issue, version: int | None) -> list[SymptomCount]:
        place = evaluation.run_id, evaluation.step, evaluation.decoding, evaluation.attempt
        key = (*place, issue.symptom, issue.env_key, version)
        if key not in self._counts:
            self._counts[key] = count_symptom(
                self.session, evaluation, issue.symptom, version=version, env_key=issue.env_key
            )
        return self._counts[key]


def _place(run_id: str | None, step: int | None) -> dict[str, Any] | None:
    return None if run_id is None else {"run_id": run_id, "step": step}


def _facts(
    change: SymptomChange,
    version: int | None,
    before: Eval | None,
    after: Eval | None,
    *,
    why: str | None,
) -> dict[str, Any]:
    evaluation = after or before
    return {
        "rule": ISSUE_RULE,
        "detectors": version,
        "decoding": None if evaluation is None else evaluation.decoding,
        "before": _rate_facts(change.before),
        "after": _rate_facts(change.after),
        "delta": change.delta,
        "num_paired": change.num_paired,
        "is_paired": change.is_paired,
        "p_value": change.p_value,
        "status": IssueStatus.NEEDS_ANALYSIS if why else change.status,
        "why": why or change.why,
    }


def _rate_facts(rate: PassRate) -> dict[str, Any] | None:
    """Return a share of rollouts as JSON; null where none is known."""
    if rate.value is None:
        return None
    return {
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "bound_if_none": rate.bound_if_failed,
        "bound_if_all": rate.bound_if_passed,
        "num_tasks": rate.num_tasks,
        "num_rollouts": rate.num_rollouts,
        "coverage": rate.coverage,
    }
