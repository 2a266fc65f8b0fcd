"""pass@1 and pass@3 by environment, difficulty and modality, wherever an evaluation is reported."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import null, select, update

from api.results.comparison.comparison import Point, build_comparison
from api.results.evals.report import VerdictOptions, build_report
from api.results.evals.table import eval_table
from api.tables import Eval, OutcomeRecord, Run, RunEvent
from hillclimb.stats.pass_rate import pass_at_k
from tests.api.fixtures.story import Story
from tests.api.fixtures.three_samples import evaluate


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    evaluate(story, run_id, 0, 0)
    evaluate(story, run_id, 40, 1)
    return run_id


def test_the_eval_table_has_every_difficulty_and_modality(story: Story, run_id: str) -> None:
    with story.database.transaction() as session:
        _, row = eval_table(session, run_id)
    assert list(row["difficulties"]) == ["1", "3", "unknown"]
    assert row["difficulties"]["3"]["pass_at_1"] == pytest.approx(1 / 3)
    assert row["difficulties"]["3"]["n"] == 18
    at_3 = row["difficulties"]["3"]["pass_at_n"]
    assert (at_3["k"], at_3["value"], at_3["num_tasks"]) == (3, pass_at_k(3, 1, 3), 6)
    assert at_3["low"] < 1.0
    assert row["difficulties"]["unknown"]["num_tasks"] == 3
    assert {key: each["num_tasks"] for key, each in row["modalities"].items()} == {
        "computer_use": 4,
        "tool_use": 8,
    }
    assert sum(each["n"] for each in row["difficulties"].values()) == row["all"]["n"]


def test_an_event_says_pass_at_3_beside_pass_at_1(story: Story, run_id: str) -> None:
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.type == "eval.completed")
    with story.database.transaction() as session:
        data = session.scalars(query.order_by(RunEvent.seq)).all()[-1].data
    assert data["all"]["pass_at_1"] == pytest.approx((6 + 18) / 36)
    assert data["all"]["pass_at_n"]["value"] == 1.0
    assert data["envs"]["booking"]["pass_at_n"]["k"] == 3
    assert data["difficulties"]["3"]["pass_at_1"] == pytest.approx(1 / 3)


def changes(facts: dict[str, Any]) -> dict[str, tuple[float, float, float, int]]:
    return {
        name: (row["before"], row["after"], row["delta"], row["n"]) for name, row in facts.items()
    }


def test_the_report_breaks_a_change_down_without_a_test(story: Story, run_id: str) -> None:
    with story.database.transaction() as session:
        sampled = build_report(session, run_id)["sampled"]
        at_3 = build_report(session, run_id, options=VerdictOptions(k=3))["sampled"]
    third = pytest.approx(1 / 3)
    assert changes(sampled["difficulties"]) == {
        "1": (1.0, 1.0, 0.0, 3),
        "3": (0.0, third, third, 6),
        "unknown": (1.0, 1.0, 0.0, 3),
    }
    assert changes({"3": sampled["difficulties"]["3"]["pass_at_n"]}) == {"3": (0.0, 1.0, 1.0, 6)}
    assert sampled["pass_at_n"]["after"] == 1.0
    assert not {"p_value", "p_adjusted", "verdict"} & set(sampled["difficulties"]["3"])
    assert changes(at_3["difficulties"])["3"] == (0.0, 1.0, 1.0, 6)
    assert at_3["difficulties"]["3"]["pass_at_n"] is None
    assert sampled["modalities"]["computer_use"]["num_gained"] == 2


def test_a_comparison_has_the_same_rows(story: Story, run_id: str) -> None:
    with story.database.transaction() as session:
        run = session.get_one(Run, run_id)
        found = build_comparison(session, Point(run=run, step=0), Point(run=run, step=40))
        report = build_report(session, run_id)["sampled"]
    sampled = found["decodings"]["sampled"]
    assert sampled["difficulties"] == report["difficulties"]
    assert sampled["modalities"] == report["modalities"]
    assert sampled["environments"]["booking"]["pass_at_n"]["num_gained"] == 6


def test_a_difficulty_that_only_later_outcomes_have_counts_on_both_sides(
    story: Story, run_id: str
) -> None:
    """Outcomes of an older trainer have none."""
    with story.database.transaction() as session:
        older = update(OutcomeRecord).where(OutcomeRecord.step == 0)
        session.execute(older.values(difficulty=None, modality=None))
        session.execute(update(Eval).values(counts=null()))
        first, _ = eval_table(session, run_id)
        sampled = build_report(session, run_id)["sampled"]
    assert list(first["difficulties"]) == list(first["modalities"]) == ["unknown"]
    assert {name: row["n"] for name, row in sampled["difficulties"].items()} == {
        "1": 3,
        "3": 6,
        "unknown": 3,
    }
