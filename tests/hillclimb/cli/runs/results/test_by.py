"""`--by`: rows by difficulty and modality, and pass@3 beside pass@1."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.story import Story
from tests.api.fixtures.three_samples import evaluate
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    evaluate(story, run_id, 0, 0)
    evaluate(story, run_id, 40, 1)
    return run_id


def lines(text: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}


@pytest.mark.parametrize("command", ["verdicts", "show"])
def test_a_report_by_difficulty_has_estimates_and_no_verdict(
    hc: Invoke, run_id: str, command: str
) -> None:
    shown = hc(command, run_id, "--by", "difficulty").stdout
    rows = lines(shown)
    assert rows["3"][:2] == ["6", "0.0"]
    assert rows["3"][3] == "33.3"
    assert "+33.3" in rows["3"]
    assert "unknown" in rows
    assert "pass@3 after %" in shown
    assert "IMPROVED" not in shown
    assert "only environments have verdicts" in shown


def test_a_report_by_environment_has_pass_at_3_beside_the_verdict(hc: Invoke, run_id: str) -> None:
    shown = hc("verdicts", run_id).stdout
    assert "pass@3 before %" in shown
    assert lines(shown)["booking"][-2] == "100.0"
    assert "pass@3 before %" not in hc("verdicts", run_id, "-k", "3").stdout


def test_a_comparison_by_modality_has_the_rows_of_the_payload(hc: Invoke, run_id: str) -> None:
    shown = hc("compare", f"{run_id}@0", run_id, "--by", "modality").stdout
    rows = lines(shown)
    assert rows["modality"][1:5] == ["a", "%", "b", "%"]
    assert rows["computer_use"][0] == "4"
    assert rows["tool_use"][0] == "8"
    found = from_json(hc("compare", f"{run_id}@0", run_id, "--json"))
    assert found["decodings"]["sampled"]["modalities"]["tool_use"]["n"] == 8
    assert hc("compare", run_id, run_id, "--by", "weather").exit_code == Exit.USAGE


def test_a_single_evaluation_is_broken_down_too(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    evaluate(story, run_id, 0, 1)
    rows = lines(hc("show", run_id, "--by", "difficulty").stdout)
    assert rows["3"][:2] == ["6", "33.3"]


def test_a_capsule_shows_pass_at_3_beside_pass_at_1(
    hc: Invoke, run_id: str, story: Story, tmp_path: Path
) -> None:
    story.finish(run_id, 40)
    file = str(tmp_path / "run.zip")
    hc("capsule", "export", run_id, "--to", file)
    rows = lines(hc("capsule", "show", file).stdout)
    assert rows["40"][1:6] == ["66.7", "%", "100.0", "%", "at"]
    (_, last) = from_json(hc("capsule", "show", file, "--json"))["evals"]
    assert last["pass_at_n"] == {"k": 3, "value": 1.0}
