"""The table of a campaign: repeats pooled, intervals, verdicts against the first model."""

from __future__ import annotations

import pytest

from api.admission.campaigns.table import pooled
from hillclimb.stats.pass_rate import TaskCount, pass_rate
from tests.api.admission.campaigns.conftest import Campaign, Json, evaluate
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


def count(task: str, graded: int, passed: int, missing: int = 0) -> TaskCount:
    return TaskCount(
        task_key=task,
        env_key="booking",
        template="t",
        held_out_template=False,
        num_graded=graded,
        num_passed=passed,
        num_missing=missing,
    )


def test_pooling_adds_up_the_rollouts_of_equal_tasks() -> None:
    pool = pooled([count("b", 1, 1), count("a", 1, 0), count("b", 2, 0, 1), count("a", 1, 1)])
    assert pool == [count("a", 2, 1), count("b", 3, 1, 1)]


def table_of(served: Served, created: Json, query: str = "") -> Json:
    with served.client() as client:
        answer = client.get(f"/v1/campaigns/{created['id']}/table{query}")
    assert answer.status_code == 200, answer.text
    table: Json = answer.json()
    return table


def test_a_table_pools_the_repeats_that_are_done(
    campaign: Campaign, story: Story, served: Served
) -> None:
    created = campaign()
    runs = [cell["run_id"] for cell in created["cells"]]
    evaluate(story, runs[0], 0.25, decodings=("sampled", "greedy"))
    evaluate(story, runs[1], 0.75)
    row, greedy = table_of(served, created)["data"][:2]
    assert (row["model"], row["decoding"], row["num_done"], row["num_repeats"]) == (
        *("a", "sampled"),
        *(2, 3),
    )
    assert (greedy["num_done"], greedy["num_repeats"]) == (1, 1)
    assert row["all"]["pass_at_1"] == pytest.approx(0.5)
    assert (row["all"]["n"], row["all"]["passes"], row["all"]["num_tasks"]) == (32, 16, 16)
    assert row["envs"]["booking"]["pass_at_1"] == pytest.approx(0.5)
    # Two of eight tasks pass twice, four once, two never, in both environments.
    tasks = [count(str(i), 2, passes) for i, passes in enumerate([2, 2, 1, 1, 1, 1, 0, 0] * 2)]
    expected = pass_rate(tasks)
    assert (row["all"]["low"], row["all"]["high"]) == pytest.approx((expected.low, expected.high))


def test_verdicts_are_against_the_first_model_on_the_same_tasks(
    campaign: Campaign, story: Story, served: Served
) -> None:
    created = campaign(repeats=1, decodings=[{"name": "sampled", "temperature": 1.0}])
    first, second = (cell["run_id"] for cell in created["cells"])
    evaluate(story, second, 1.0)
    early = table_of(served, created)
    assert early["is_complete"] is False
    assert [row["against_baseline"] for row in early["data"]] == [None, None]
    evaluate(story, first, 0.0)
    late = table_of(served, created)
    against = late["data"][1]["against_baseline"]
    assert late["is_complete"] is True
    assert late["data"][0]["against_baseline"] is None
    assert (against["n"], against["num_gained"], against["num_lost"]) == (16, 16, 0)
    assert (against["delta"], against["verdict"]) == (1.0, "improved")


def test_pass_at_k_counts_the_rollouts_of_all_repeats(
    campaign: Campaign, story: Story, served: Served
) -> None:
    created = campaign(repeats=2, decodings=[{"name": "sampled", "temperature": 1.0}])
    for number, cell in enumerate(created["cells"]):
        evaluate(story, cell["run_id"], 0.25 if number % 2 else 0.5)
    row = table_of(served, created, "?k=2")["data"][0]
    # Four of eight tasks passed at least once in two rollouts.
    assert row["all"]["pass_at_n"]["value"] == pytest.approx(0.5)
    assert row["all"]["pass_at_1"] == pytest.approx(0.375)
