"""`hillclimb issue`: the ledger in a terminal, as JSON and as Markdown."""

from __future__ import annotations

import pytest

from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.story import Story
from tests.api.results.issues.conftest import evaluate
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    evaluate(story, run_id, 0, 0.4)
    evaluate(story, run_id, 40, 0.0)
    return run_id


def create(hc: Invoke, run_id: str, *options: str) -> str:
    named = ("--severity", "critical", "--symptom", "cannot_signal_done")
    created = hc("issue", "create", "No [done]", *named, "--baseline", f"{run_id}@0", *options,
                 "--json")  # fmt: skip
    issue_id: str = from_json(created)["id"]
    return issue_id


def test_an_issue_is_created_changed_and_closed(hc: Invoke, run_id: str) -> None:
    issue_id = create(hc, run_id, "--env", "booking")
    assert "NEEDS ANALYSIS" in hc("issue", "show", issue_id).stdout
    changed = hc("issue", "change", issue_id, "--after", f"{run_id}@40", "--env", "all").stdout
    assert "FIXED" in changed
    assert "No [done]" in changed
    assert "in booking" not in changed
    assert "rule i1, test paired over 40 tasks, detectors of version 1" in changed
    closed = hc("issue", "close", issue_id, "--resolution", "prompt v0.2").stdout
    assert "prompt v0.2" in closed
    refused = hc("issue", "change", issue_id, "--title", "x")
    assert refused.exit_code == Exit.REFUSED
    assert "does not change" in refused.stderr
    assert hc("issue", "change", issue_id).exit_code == Exit.USAGE


def test_the_ledger_is_printed_as_markdown_and_the_list_as_a_table(hc: Invoke, run_id: str) -> None:
    create(hc, run_id, "--after", f"{run_id}@40", "--impact", "loops")
    create(hc, run_id)
    ledger = hc("issue", "ledger", "--state", "open").stdout
    assert ledger.startswith("| Issue | Severity | Description | Impact |\n")
    assert "| **1. No [done]** | CRITICAL |  | loops |" in ledger
    shown = hc("issue", "list", "--limit", "1").stdout
    assert "more: hillclimb issue list --before iss_" in shown
    assert hc("issue", "show", "iss_nowhere").exit_code == Exit.NOT_FOUND
    assert hc("issue", "list", "--severity", "P0").exit_code == Exit.USAGE
