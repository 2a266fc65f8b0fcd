"""`hillclimb compare`: what differs between two runs, in a terminal and as JSON."""

from __future__ import annotations

from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

OLD, NEW = {"booking": 0.2, "github": 0.5}, {"booking": 0.6, "github": 0.5}


def test_two_runs_are_compared_by_their_last_evaluations(hc: Invoke, story: Story) -> None:
    a, b = story.running(), story.running()
    story.push(a, story.evaluation(a, 40, OLD))
    story.push(b, story.evaluation(b, 40, NEW))
    shown = hc("compare", a, b).stdout
    assert f"{a}@40" in shown
    assert "the specs do not differ" in shown
    assert "IMPROVED" in shown
    assert shown.count("gained booking") == 10
    assert "and 14 more gained: see --json" in shown
    assert "tokens of passes" in shown
    found = from_json(hc("compare", f"{a}@40", b, "--json"))
    assert found["decodings"]["sampled"]["all"]["num_gained"] == 24


def test_unknown_runs_and_steps_are_refused(hc: Invoke, story: Story) -> None:
    a = story.running()
    story.push(a, story.evaluation(a, 40, OLD))
    assert hc("compare", a, "run_nowhere").exit_code == Exit.NOT_FOUND
    missing = hc("compare", a, f"{a}@3")
    assert missing.exit_code == Exit.NOT_FOUND
    assert "no evaluation at step 3" in missing.stderr
    assert hc("compare", a, f"{a}@x").exit_code == Exit.REFUSED
