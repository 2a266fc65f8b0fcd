"""The page of issues lists every symptom and status that there is."""

from __future__ import annotations

from pathlib import Path

from api.results.issues.store import MAX_ISSUES, MAX_LEDGER
from hillclimb.stats.trajectories.symptoms import OUTCOME_SYMPTOMS
from hillclimb.stats.verdicts.issue_rule import FIXED_BELOW, ISSUE_RULE, IssueStatus
from hillclimb.stats.verdicts.verdict import MIN_TASKS

PAGE = (Path(__file__).parents[3] / "docs" / "issues.md").read_text()


def test_symptoms_statuses_and_limits_are_those_of_the_code() -> None:
    for name, definition in OUTCOME_SYMPTOMS.items():
        assert f"| `{name}` | {definition} |" in PAGE
    for status in IssueStatus:
        assert f"| {status.value.upper().replace('_', ' ')} |" in PAGE
    assert f"## Status: rule {ISSUE_RULE}" in PAGE
    assert f"less than {100 * FIXED_BELOW:.0f} % of the rollouts" in PAGE
    assert f"at least {MIN_TASKS} tasks" in PAGE
    assert f"at most {MAX_ISSUES:,} of them" in PAGE
    assert f"the newest {MAX_LEDGER} as" in PAGE
