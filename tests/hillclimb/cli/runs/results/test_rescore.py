"""`hillclimb rescore` and `--threshold`: the stored rollouts, scored in another way."""

from __future__ import annotations

from hillclimb.cli.exits import Exit
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json


def a_run_of_half_scores(story: Story) -> str:
    """Twelve tasks, each with the score 0.6 where it would have passed."""
    run_id = story.running()
    for step, rate in ((0, 0.25), (40, 0.75)):
        event = story.evaluation(run_id, step, {"booking": rate}, tasks=12)
        rows = tuple(
            row.model_copy(update={"score": 0.6 * (row.score or 0)}) for row in event.outcomes
        )
        story.push(run_id, event.model_copy(update={"outcomes": rows}))
    return run_id


def test_another_threshold_shows_both_rates_of_each_evaluation(hc: Invoke, story: Story) -> None:
    run_id = a_run_of_half_scores(story)
    shown = hc("rescore", run_id, "--threshold", "0.5").stdout
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line.split() for line in shown.splitlines() if "sampled" in line]
    assert [(row[0], row[3], row[6]) for row in rows] == [
        ("0", "0.0", "25.0"),
        ("40", "0.0", "75.0"),
    ]
    assert "rescored: a rollout passes from a score of 0.5 on" in shown
    found = from_json(hc("rescore", run_id, "--threshold", "0.5", "--json"))
    assert [each["all"]["passes"] for each in found["data"]] == [3, 9]


def test_verdicts_and_compare_name_the_threshold(hc: Invoke, story: Story) -> None:
    run_id = a_run_of_half_scores(story)
    for arguments in (["verdicts", run_id], ["compare", f"{run_id}@0", run_id]):
        shown = hc(*arguments, "--threshold", "0.5").stdout
        assert "rescored: a rollout passes from a score of 0.5 on" in shown
        assert "25.0 (9–53)" in shown
        plain = hc(*arguments).stdout
        assert "rescored" not in plain
        assert "25.0" not in plain


def test_thresholds_that_no_score_can_have_are_refused(hc: Invoke, story: Story) -> None:
    run_id = a_run_of_half_scores(story)
    for threshold in ("0", "1.5", "nan", "half"):
        assert hc("rescore", run_id, "--threshold", threshold).exit_code == Exit.USAGE
    assert hc("rescore", "run_nowhere", "--threshold", "0.5").exit_code == Exit.NOT_FOUND
