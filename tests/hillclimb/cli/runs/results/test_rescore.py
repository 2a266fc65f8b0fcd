"""`hillclimb rescore` and `--threshold`: the stored rollouts, scored in another way."""

from __future__ import annotations

from hillclimb.blobs.disk import DiskStore
from hillclimb.cli.terminal.exits import Exit
from hillclimb.minifleet.replay import verifier_version
from tests.api.fixtures.story import Story
from tests.api.results.rescoring.test_rescore import evaluate, six_ends
from tests.api.results.rescoring.test_search import evaluate as search_story
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
    assert [(row[0], row[3], row[7]) for row in rows] == [
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
        assert "25.0 (5–57)" in shown
        plain = hc(*arguments).stdout
        assert "rescored" not in plain
        assert "25.0" not in plain


def test_thresholds_that_no_score_can_have_are_refused(hc: Invoke, story: Story) -> None:
    run_id = a_run_of_half_scores(story)
    for threshold in ("0", "1.5", "nan", "half"):
        assert hc("rescore", run_id, "--threshold", threshold).exit_code == Exit.USAGE
    assert hc("rescore", "run_nowhere", "--threshold", "0.5").exit_code == Exit.NOT_FOUND


def test_the_present_verifier_grades_the_stored_rollouts_again(
    hc: Invoke, story: Story, blobs: DiskStore
) -> None:
    run_id = story.running()
    assert "not rescored yet" in hc("rescore", run_id).stdout
    evaluate(story, blobs, run_id, 0, six_ends())
    shown = hc("rescore", run_id, "--verifier", "present").stdout
    assert f"{verifier_version()}: 4 of 6 rollouts graded, 2 otherwise than stored" in shown
    assert "1 without a grade: not_replayable: other_answer" in shown
    assert max(map(len, shown.splitlines())) <= 80
    row = next(line.split() for line in shown.splitlines() if "sampled" in line)
    assert (row[2], row[3], row[6], row[7]) == ("4", "25.0", "4", "50.0")
    found = from_json(hc("rescore", run_id, "--verifier", "present", "--json"))
    assert (found["num_graded"], found["verifier"]) == (4, verifier_version())
    listed = from_json(hc("rescore", run_id, "--json"))
    assert [each["num_rollouts"] for each in listed["data"]] == [6]
    for arguments in (["verdicts", run_id], ["compare", f"{run_id}@0", run_id]):
        words = hc(*arguments, "--verifier", verifier_version()).stdout
        assert f"rescored by {verifier_version()}" in words
    again = hc("rescore", run_id, "--verifier", verifier_version(), "--threshold", "0.5").stdout
    assert "50.0" in again
    assert hc("verdicts", run_id, "--verifier", "minifleet-0").exit_code == Exit.NOT_FOUND


def test_stored_rollouts_are_searched_again_for_patterns(
    hc: Invoke, story: Story, blobs: DiskStore
) -> None:
    run_id = story.running()
    search_story(story, blobs, run_id, 0, repeating=10, version=0)
    search_story(story, blobs, run_id, 40, repeating=2, version=1)
    mixed = hc("patterns", run_id)
    assert mixed.exit_code == Exit.REFUSED
    assert f"hillclimb rescore {run_id} --patterns" in mixed.stderr
    shown = hc("rescore", run_id, "--patterns").stdout
    assert "detectors of version 1: 12 rollouts searched again, 10 otherwise than stored" in shown
    assert "12 were searched by it when they were rolled out" in shown
    assert "by version 1 of the detectors" in hc("patterns", run_id).stdout
    assert "by version 0 of the detectors" in hc("patterns", run_id, "--detectors", "0").stdout
    assert "12 rollouts searched again" in hc("rescore", run_id).stdout
    assert from_json(hc("rescore", run_id, "--patterns", "--json"))["num_searched"] == 12
    both = hc("rescore", run_id, "--patterns", "--threshold", "0.5")
    assert both.exit_code == Exit.USAGE
