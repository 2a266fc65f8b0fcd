"""The ledger of compute: repeated, interrupted and rejected work counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from api.results.ledger import read_ledger
from api.tables import ComputeRecord
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.results.spending import a_step, an_evaluation, an_interruption


def a_retried_run(story: Story) -> str:
    """Attempt 1 does steps 1 to 3 and is stopped in step 4; attempt 2 repeats step 3, and goes on.

    Evaluations: at 0 and 2 by attempt 1, at 4 by attempt 2.
    """
    run_id = story.running()
    story.push(run_id, an_evaluation(story, run_id, 0, 0.2))
    story.push(run_id, *(a_step(story, run_id, step) for step in (1, 2)))
    story.push(run_id, an_evaluation(story, run_id, 2, 0.3), a_step(story, run_id, 3))
    story.push(run_id, an_interruption(story, run_id, 4, during="train"))
    story.report(run_id, ReasonCode.TRAINER_CRASHED, message="")
    story.launch(run_id)
    story.push(run_id, story.started(run_id, resumed_from=2))
    story.push(run_id, *(a_step(story, run_id, step) for step in (3, 4)))
    story.push(run_id, an_evaluation(story, run_id, 4, 0.6))
    return run_id


def read(served: Served, run_id: str) -> dict[str, Any]:
    with served.client() as client:
        response = client.get(f"/v1/runs/{run_id}/compute")
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_step_that_a_retry_repeats_was_spent_twice(served: Served, story: Story) -> None:
    found = read(served, a_retried_run(story))
    training = found["training"]
    assert (training["num_rollouts"], training["num_learned"], training["num_rejected"]) == (
        50,
        20,
        30,
    )
    assert (training["num_resampled"], training["num_ungraded"]) == (15, 5)
    assert training["num_lost_tries"] == 10
    # Five steps of 1500 tokens, and 33 of the step that was interrupted.
    assert training["num_tokens"] == 7533
    assert training["num_trained_tokens"] == 3000
    assert training["flops"] == 5 * 4e6 + 1e5
    assert found["num_repeated_steps"] == 1
    assert found["evaluation"]["num_rollouts"] == 180
    assert found["evaluation"]["flops"] == 15e6
    assert [each["training"]["num_rollouts"] for each in found["attempts"]] == [30, 20]
    assert found["is_complete"]


def test_the_rows_are_in_the_order_of_spending_with_running_sums(
    served: Served, story: Story
) -> None:
    rows = read(served, a_retried_run(story))["rows"]
    assert [(row["attempt"], row["step"], row["kind"], row["is_complete"]) for row in rows] == [
        (1, 0, "eval", True),
        (1, 1, "train", True),
        (1, 2, "train", True),
        (1, 2, "eval", True),
        (1, 3, "train", True),
        (1, 4, "train", False),
        (2, 3, "train", True),
        (2, 4, "train", True),
        (2, 4, "eval", True),
    ]
    assert [row["cumulative_rollouts"] for row in rows] == [0, 10, 20, 20, 30, 30, 40, 50, 50]
    assert [row["cumulative_tokens"] for row in rows][-4:] == [4533, 6033, 7533, 7533]
    assert rows[-1]["cumulative_flops"] == 20.1e6


def test_what_was_spent_by_an_evaluation_follows_its_attempt(story: Story) -> None:
    run_id = a_retried_run(story)
    with story.database.transaction() as session:
        ledger = read_ledger(session, run_id)
    rollouts = [
        ledger.spent_by(attempt=attempt, step=step).num_rollouts
        for attempt, step in ((1, 0), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4))
    ]
    assert rollouts == [0, 20, 30, 30, 40, 50]


def test_events_that_arrive_twice_are_spent_once(story: Story) -> None:
    run_id = story.running()
    first, interrupted = (
        a_step(story, run_id, 1),
        an_interruption(story, run_id, 1, during="eval"),
    )
    story.push(run_id, first, interrupted)
    story.push(run_id, first, interrupted)
    with story.database.transaction() as session:
        rows = session.query(ComputeRecord).all()
        assert sorted((row.kind, row.decoding, row.is_complete) for row in rows) == [
            ("eval", "", False),
            ("train", "train", True),
        ]


def test_an_unknown_part_makes_sums_unknown_and_a_gap_is_told(served: Served, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, a_step(story, run_id, 1), a_step(story, run_id, 2, flops=None))
    found = read(served, run_id)
    assert found["training"]["flops"] is None
    assert found["training"]["rollout_flops"] == 2e6
    assert found["is_complete"]
    story.push(run_id, story.step(run_id, 3, {"booking": 0.5}))
    assert not read(served, run_id)["is_complete"]


def test_a_run_that_has_done_nothing_has_an_empty_ledger(served: Served, story: Story) -> None:
    found = read(served, story.running())
    assert (found["rows"], found["attempts"], found["is_complete"]) == ([], [], True)
    assert (found["training"]["num_rollouts"], found["training"]["flops"]) == (0, 0.0)


@pytest.mark.parametrize("whose", ["stranger", "nobody"])
def test_a_ledger_of_somebody_else_is_not_shown(served: Served, story: Story, whose: str) -> None:
    run_id = a_retried_run(story)
    key = served.stranger_key if whose == "stranger" else None
    path = run_id if whose == "stranger" else "run_nowhere"
    with served.client(key) as client:
        assert client.get(f"/v1/runs/{path}/compute").status_code == 404
