"""`hillclimb signal`: a table within 80 columns, and the reading of each environment."""

from __future__ import annotations

from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_the_report_is_a_table_and_a_sentence_per_environment(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    assert hc("signal", run_id).stdout.strip() == "no training step has ended yet"
    for step in range(1, 4):
        story.push(run_id, story.step(run_id, step, {"booking": 0.5, "github": 1.0}))
    shown = hc("signal", run_id).stdout
    tables = [line for line in shown.splitlines() if ": " not in line]
    assert max(map(len, tables)) <= 80
    assert "signal, steps 1 to 3" in shown
    assert "SATURATED" in shown
    assert "github: 0% of groups and 0% of steps have signal; 100% pass as a whole" in shown
    assert from_json(hc("signal", run_id, "--window", "2", "--json"))["first_step"] == 2
    assert list(from_json(hc("signal", run_id, "--env", "github", "--json"))["environments"]) == [
        "github"
    ]
