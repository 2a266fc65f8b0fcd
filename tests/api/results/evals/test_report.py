"""The before/after report."""

from __future__ import annotations

import pytest

from api.results.errors import NoSuchEval
from api.results.evals.report import VerdictOptions, build_report
from api.results.evals.table import eval_table
from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.verdicts.compare import compare_rows
from tests.api.fixtures.story import Story, rollout

BEFORE = {"booking": 0.2, "github": 0.95, "outlook": 0.0}
AFTER = {"booking": 0.9, "github": 0.95, "outlook": 0.0}


def trained(story: Story) -> str:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, BEFORE))
    story.push(run_id, story.evaluation(run_id, 0, BEFORE, decoding="greedy"))
    story.push(run_id, story.evaluation(run_id, 20, dict.fromkeys(BEFORE, 0.5)))
    story.push(run_id, story.evaluation(run_id, 40, AFTER))
    story.push(run_id, story.evaluation(run_id, 40, AFTER, decoding="greedy"))
    return run_id


def test_the_report_compares_the_first_and_the_last_evaluation_of_each_decoding(
    story: Story,
) -> None:
    run_id = trained(story)
    for step in (1, 2):
        story.push(run_id, story.step(run_id, step, BEFORE))
    story.finish(run_id, 40)
    with story.database.transaction() as session:
        report = build_report(session, run_id)
    assert report["decodings"] == ["sampled", "greedy"]
    assert (report["before_step"], report["after_step"]) == (0, 40)
    assert report["training_seconds"] == 9.0
    for name in ("sampled", "greedy"):
        assert report[name]["before"] == pytest.approx((0.2 + 0.95 + 0.0) / 3)
        assert report[name]["after"] == pytest.approx((0.9 + 0.95 + 0.0) / 3)
        assert report[name]["n"] == 180
        assert report[name]["p_value"] < 1e-6
        low, high = report[name]["after_interval"]
        assert low < report[name]["after"] < high
    verdicts = {env: found["sampled"]["verdict"] for env, found in report["environments"].items()}
    assert verdicts == {"booking": "improved", "github": "saturated", "outlook": "failing"}


def test_the_report_says_what_the_contracts_own_comparison_says(story: Story) -> None:
    run_id = story.running()
    before = story.evaluation(run_id, 0, BEFORE, infra_share=0.1)
    after = story.evaluation(run_id, 40, AFTER, infra_share=0.1)
    story.push(run_id, before, after)
    expected = compare_rows(before.outcomes, after.outcomes, pass_threshold=1.0)
    with story.database.transaction() as session:
        report = build_report(session, run_id)
    assert report["sampled"]["p_value"] == expected.overall.p_value
    assert report["sampled"]["delta"] == expected.overall.delta
    assert report["sampled"]["after_bounds"] == [
        expected.overall.after.bound_if_failed,
        expected.overall.after.bound_if_passed,
    ]
    assert report["sampled"]["held_out_templates"]["n"] == expected.held_out_templates.num_paired
    for env, comparison in expected.by_env.items():
        assert report["environments"][env]["sampled"]["verdict"] == comparison.verdict
        assert report["environments"][env]["sampled"]["before"] == comparison.before.value


def test_failures_are_counted_by_cause_on_both_sides(story: Story) -> None:
    run_id = story.running()
    stop = StopReason.MAX_TURNS
    old = [rollout("booking", i, passed=False, stop=stop, repeated=3) for i in range(8)]
    old += [rollout("booking", 8, passed=False, stop=stop)]
    new = [rollout("booking", i, passed=True, step=40) for i in range(8)]
    new += [rollout("booking", 8, passed=False, step=40, repeated=1)]
    first, last = story.evaluation(run_id, 0, {}), story.evaluation(run_id, 40, {})
    story.push(run_id, first.model_copy(update={"outcomes": tuple(old)}))
    story.push(run_id, last.model_copy(update={"outcomes": tuple(new)}))
    with story.database.transaction() as session:
        failures = build_report(session, run_id)["sampled"]["failures"]
    counts = {cause: (row["before"], row["after"]) for cause, row in failures.items()}
    assert counts == {"repeated_calls": (8, 0), "no_done": (1, 0), "wrong_state": (0, 1)}


def test_steps_may_be_chosen_and_must_exist(story: Story) -> None:
    run_id = trained(story)
    with story.database.transaction() as session:
        report = build_report(session, run_id, before=0, after=20)
        assert report["decodings"] == ["sampled"]
        assert report["sampled"]["after"] == pytest.approx(0.5)
        with pytest.raises(NoSuchEval, match="step 7"):
            build_report(session, run_id, after=7)
        with pytest.raises(NoSuchEval, match="no evaluation yet"):
            build_report(session, story.submit())


def test_a_repeated_evaluation_counts_with_its_newest_attempt(story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.1}))
    story.push(run_id, story.evaluation(run_id, 10, {"booking": 0.3}))
    with story.database.transaction() as session:
        session.connection().exec_driver_sql(
            "INSERT INTO evals (run_id, attempt, step, decoding, temperature, n_samples_per_prompt,"
            " pass_threshold, duration_s, at) SELECT run_id, 2, step, decoding, temperature,"
            " n_samples_per_prompt, pass_threshold, duration_s, at FROM evals WHERE step = 10"
        )
        session.connection().exec_driver_sql(
            "INSERT INTO outcomes (run_id, rollout_id, attempt, step, split, decoding, task_key,"
            " env_key, template, held_out_template, sample_index, status, score, reason,"
            " stop_reason, num_turns, num_tool_calls, num_tool_errors, num_repeated_calls,"
            " num_tokens, num_infra_retries, duration_s, trajectory, trajectory_line)"
            " SELECT run_id, 'again-' || rollout_id, 2, step, split, decoding,"
            " task_key, env_key, template, held_out_template, sample_index, status, 1.0, reason,"
            " stop_reason, num_turns, num_tool_calls, num_tool_errors, num_repeated_calls,"
            " num_tokens, num_infra_retries, duration_s, trajectory, trajectory_line"
            " FROM outcomes WHERE step = 10"
        )
    with story.database.transaction() as session:
        rows = eval_table(session, run_id)
    assert [(row["step"], row["attempt"], row["all"]["pass_at_1"]) for row in rows] == [
        (0, 1, pytest.approx(0.1)),
        (10, 2, 1.0),
    ]


def test_each_evaluation_is_counted_under_its_own_threshold(story: Story) -> None:
    run_id = story.running()
    for step, threshold in ((0, 0.5), (10, 0.7)):
        event = story.evaluation(run_id, step, {"booking": 0.25}, tasks=8)
        rows = tuple(
            row.model_copy(update={"score": 0.6}) if row.score else row for row in event.outcomes
        )
        story.push(run_id, event.model_copy(update={"outcomes": rows, "pass_threshold": threshold}))
    with story.database.transaction() as session:
        passes = [row["all"]["passes"] for row in eval_table(session, run_id)]
    assert passes == [2, 0]


def test_the_table_tells_seen_from_held_out_templates(story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}, tasks=40))
    with story.database.transaction() as session:
        (row,) = eval_table(session, run_id)
    assert row["seen_templates"]["n"] == 30
    assert row["held_out_templates"]["n"] == 10
    assert row["envs"]["booking"]["passes"] == 20
    assert row["envs"]["booking"]["pass_at_n"] is None


def test_pass_at_k_needs_as_many_rollouts_per_task(story: Story) -> None:
    run_id = trained(story)
    with story.database.transaction() as session:
        assert build_report(session, run_id)["k"] == 1
        with pytest.raises(NoSuchEval, match="no decoding of these evaluations has 3 rollouts"):
            build_report(session, run_id, options=VerdictOptions(k=3))


def test_a_step_that_may_have_been_chosen_counts_every_planned_evaluation(story: Story) -> None:
    """Evaluations at 10, 20, 30 and 40 are planned; the last one is no choice."""
    run_id = trained(story)
    with story.database.transaction() as session:
        chosen = build_report(session, run_id, after=20)
        later = build_report(session, run_id, before=20, after=20)
        last = build_report(session, run_id)
    assert (chosen["num_candidates"], last["num_candidates"]) == (4, 1)
    assert later["num_candidates"] == 2
    assert chosen["rule"] == last["rule"] == "v2"
