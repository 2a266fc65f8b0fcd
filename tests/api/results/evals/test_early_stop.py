"""Reports on evaluations that ended early: the tasks of both sides, by e-values alone."""

from __future__ import annotations

from sqlalchemy import select

from api.notices.render import render
from api.results.evals.report import build_report
from api.results.evals.table import eval_table
from api.runs.journal import utc_now
from api.runs.outbox import Claim
from api.tables import RunEvent
from hillclimb.protocol.events import EarlyStop, EvalCompleted
from hillclimb.stats.verdicts.compare import compare_rows
from hillclimb.stats.verdicts.verdict import Selection
from tests.api.fixtures.story import Story

BEFORE = {"booking": 0.5, "github": 0.5}
SENTENCE = "stopped early: IMPROVED after 80 of 120 tasks (against step 0)"


def stopped(event: EvalCompleted, *, after: int, verdict: str) -> EvalCompleted:
    """The evaluation with the outcomes of so many first tasks of each environment."""
    rows = [row for row in event.outcomes if int(row.task_key.rpartition("-")[2]) < after]
    stop = EarlyStop(
        cause="decided",
        verdict=verdict,
        decided_at=len(rows),
        planned=len(event.outcomes),
        baseline_step=0,
        num_discarded=3,
    )
    return event.model_copy(update={"outcomes": tuple(rows), "stopped_early": stop})


def a_run(story: Story, rate: float, *, after: int, verdict: str) -> str:
    """Of 60 tasks per environment the first half pass before, and `rate` of the rest after."""
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, BEFORE))
    last = story.evaluation(run_id, 40, dict.fromkeys(BEFORE, rate))
    story.push(run_id, stopped(last, after=after, verdict=verdict))
    return run_id


def test_the_stored_word_is_read_again_from_the_tasks_that_both_sides_have(story: Story) -> None:
    """30 + 10 tasks of each: 20 gained, none lost."""
    run_id = a_run(story, 1.0, after=40, verdict="improved")
    with story.database.transaction() as session:
        overall = build_report(session, run_id)["sampled"]
    assert overall["after_stopped_early"]["verdict"] == overall["verdict"] == "improved"
    assert overall["before_stopped_early"] is None
    assert (overall["n"], overall["num_gained"]) == (80, 20)
    assert (overall["before"], overall["after"]) == (60 / 80, 1.0)
    assert (overall["before_coverage"], overall["after_coverage"]) == (1.0, 1.0)
    assert overall["after_bounds"] == [1.0, 1.0]


def test_the_test_that_needs_all_planned_tasks_is_not_read(story: Story) -> None:
    """Six gained and none lost are significant at a planned end (p = 0.031), not at a look."""
    run_id = a_run(story, 33 / 60, after=35, verdict="flat")
    with story.database.transaction() as session:
        overall = build_report(session, run_id)["sampled"]
    assert (overall["num_gained"], overall["num_lost"], overall["verdict"]) == (6, 0, "flat")
    assert overall["p_value"] == 2 / 2**6
    complete = story.running()
    story.push(complete, story.evaluation(complete, 0, BEFORE))
    story.push(complete, story.evaluation(complete, 40, dict.fromkeys(BEFORE, 33 / 60)))
    with story.database.transaction() as session:
        assert build_report(session, complete)["sampled"]["verdict"] == "improved"


def test_the_report_says_what_the_contracts_own_comparison_says(story: Story) -> None:
    run_id = story.running()
    before = story.evaluation(run_id, 0, BEFORE, infra_share=0.1)
    whole = story.evaluation(run_id, 40, dict.fromkeys(BEFORE, 1.0), infra_share=0.1)
    after = stopped(whole, after=45, verdict="improved")
    story.push(run_id, before, after)
    keys = {row.task_key for row in after.outcomes}
    expected = compare_rows(
        [row for row in before.outcomes if row.task_key in keys],
        after.outcomes,
        pass_threshold=1.0,
        selection=Selection(is_complete=False),
    ).overall
    with story.database.transaction() as session:
        found = build_report(session, run_id)["sampled"]
    assert (found["verdict"], found["p_adjusted"], found["e_value"]) == (
        expected.verdict,
        expected.p_adjusted,
        expected.e_value,
    )


def test_the_table_of_evaluations_tells_what_was_planned(story: Story) -> None:
    run_id = a_run(story, 1.0, after=40, verdict="improved")
    with story.database.transaction() as session:
        first, last = eval_table(session, run_id)
    assert first["stopped_early"] is None
    assert last["stopped_early"] == {
        "cause": "decided",
        "verdict": "improved",
        "decided_at": 80,
        "planned": 120,
        "baseline_step": 0,
        "num_discarded": 3,
    }
    assert last["all"]["coverage"] == 1.0
    assert last["all"]["num_rollouts"] == 80


def test_slack_is_told_that_it_ended_early(story: Story) -> None:
    run_id = a_run(story, 1.0, after=40, verdict="improved")
    with story.database.transaction() as session:
        query = select(RunEvent.seq).where(
            RunEvent.run_id == run_id, RunEvent.type == "eval.completed"
        )
        seq = session.scalars(query.order_by(RunEvent.seq)).all()[-1]
        claim = Claim(
            id=1, run_id=run_id, kind="eval", payload={"seq": seq}, num_attempts=1, owner="me"
        )
        message = render(session, claim, public_url="http://service", now=utc_now())
    assert SENTENCE in str(message.blocks)
