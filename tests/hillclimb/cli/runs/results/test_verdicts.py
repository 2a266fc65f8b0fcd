"""`hillclimb verdicts`: two evaluations of a run, within 80 columns, under either rule."""

from __future__ import annotations

from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json

BEFORE = {"booking": 0.3, "github": 0.5, "outlook": 0.95}
BETTER = {"booking": 0.4, "github": 0.5, "outlook": 0.95}


def an_evaluated_run(story: Story) -> str:
    """Evaluations at 0, 20 and 40 of those planned every 10 steps; the one at 20 is the best."""
    assert (spec().schedule.total_steps, spec().eval.interval) == (40, 10)
    run_id = story.running()
    for step, rates in ((0, BEFORE), (20, BETTER), (40, BEFORE)):
        story.push(run_id, story.evaluation(run_id, step, rates))
    return run_id


def test_the_table_fits_a_terminal_and_says_what_p_stands_for(hc: Invoke, story: Story) -> None:
    run_id = an_evaluated_run(story)
    shown = hc("verdicts", run_id).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "pass@1 at step 0 → 40" in shown
    assert "SATURATED" in shown
    assert "smallest gain shown (points, power 0.8): booking +" in shown
    assert "rule v2: step 40 was planned" in " ".join(shown.split())


def test_a_step_that_was_chosen_counts_as_one_of_all_planned(hc: Invoke, story: Story) -> None:
    run_id = an_evaluated_run(story)
    new = from_json(hc("verdicts", run_id, "--after", "20", "--json"))
    old = from_json(hc("verdicts", run_id, "--after", "20", "--rule", "v1", "--json"))
    assert (new["rule"], new["num_candidates"], new["after_step"]) == ("v2", 4, 20)
    assert old["rule"] == "v1"
    before, after = old["environments"]["booking"]["sampled"], new["environments"]["booking"]
    assert (before["verdict"], before["p_adjusted"]) == ("improved", None)
    assert after["sampled"]["p_value"] == before["p_value"] < 0.05
    # Four evaluations and three environments.
    assert after["sampled"]["p_adjusted"] > 0.1
    assert after["sampled"]["verdict"] == "inconclusive"
    sentence = "step 20 may have been chosen from 4 evaluations"
    assert sentence in " ".join(hc("verdicts", run_id, "--after", "20").stdout.split())


def test_a_step_without_an_evaluation_is_refused(hc: Invoke, story: Story) -> None:
    run_id = an_evaluated_run(story)
    result = hc("verdicts", run_id, "--after", "7")
    assert result.exit_code == Exit.NOT_FOUND
    assert "no evaluation at step 7" in result.stderr
