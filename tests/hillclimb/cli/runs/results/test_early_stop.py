"""Evaluations that ended early, as the terminal shows them."""

from __future__ import annotations

from hillclimb.cli.runs.view import lines_of_event
from hillclimb.client.run_view import RunView, apply
from tests.api.fixtures.story import Story
from tests.api.results.evals.test_early_stop import SENTENCE, a_run
from tests.hillclimb.cli.conftest import Invoke


def test_every_table_of_verdicts_says_which_side_ended_early(hc: Invoke, story: Story) -> None:
    run_id = a_run(story, 1.0, after=40, verdict="improved")
    for command in ("verdicts", "show"):
        shown = hc(command, run_id).stdout
        assert f"step 40 {SENTENCE}" in " ".join(shown.split())
        assert max(map(len, shown.splitlines())) <= 80
    compared = hc("compare", f"{run_id}@0", f"{run_id}@40").stdout
    assert f"b {SENTENCE}" in " ".join(compared.split())


def test_who_watches_reads_it_below_the_rates() -> None:
    stop = {
        "cause": "futile",
        "verdict": "flat",
        "decided_at": 200,
        "planned": 300,
        "baseline_step": 0,
        "num_discarded": 7,
    }
    rates = {"all": {"pass_at_1": 0.5}, "envs": {}}
    data = {"step": 20, "decoding": "sampled", "stopped_early": stop, **rates}
    view = apply(RunView(run_id="run_1"), "eval.completed", data)
    assert lines_of_event(view, "eval.completed") == [
        "eval at step 20 (sampled): all 50.0 %",
        "stopped early: FLAT after 200 of 300 tasks (against step 0), hardly to be decided by the"
        " others",
    ]
