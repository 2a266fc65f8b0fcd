"""Two runs compared after equal steps, rollouts, tokens and FLOPs."""

from __future__ import annotations

from typing import Any

import pytest

from api.results.comparison.comparison import Point, build_comparison
from api.results.errors import NoLedger, NoSuchEval
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.results.compute import Amount
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served
from tests.api.results.spending import a_step, an_evaluation

__all__ = ["blobs", "served"]


def a_run(story: Story, *, last: int, every: int, rollouts: int, flops: float | None) -> str:
    """Evaluated at 0 and every so many steps up to `last`, in a schedule of 40 steps."""
    run_id = story.running()
    story.push(run_id, an_evaluation(story, run_id, 0, 0.1))
    for step in range(1, last + 1):
        story.push(run_id, a_step(story, run_id, step, rollouts=rollouts, flops=flops))
        if step % every == 0:
            story.push(run_id, an_evaluation(story, run_id, step, step / 50))
    return run_id


def compared(story: Story, a: str, b: str, at: Amount | None) -> dict[str, Any]:
    with story.database.transaction() as session:
        points = [Point(run=session.get_one(Run, run_id)) for run_id in (a, b)]
        return build_comparison(session, *points, at=at)


@pytest.mark.parametrize(
    ("at", "steps", "rollouts"),
    [
        (None, (40, 20), (400, 600)),
        # b ends at 20 steps, and so does a.
        ("steps", (20, 20), (200, 600)),
        # a has 400 in all, which is the smaller total; b has 300 at 10 and 600 at 20.
        ("rollouts", (40, 10), (400, 300)),
        # a's 40 steps take 150 * 10 tokens each, b's 150 * 30: as the rollouts.
        ("tokens", (40, 10), (400, 300)),
        # a: 40 steps of 4e6; b: 20 of 10e6 are 200e6, 10 are 100e6.
        ("flops", (40, 10), (400, 300)),
    ],
)
def test_both_sides_are_taken_at_the_smaller_total(
    story: Story, at: Amount | None, steps: tuple[int, int], rollouts: tuple[int, int]
) -> None:
    a = a_run(story, last=40, every=10, rollouts=10, flops=3e6)
    b = a_run(story, last=20, every=10, rollouts=30, flops=9e6)
    found = compared(story, a, b, at)
    assert found["at"] == at
    assert (found["a"]["step"], found["b"]["step"]) == steps
    spent = found["a"]["spent"], found["b"]["spent"]
    assert (spent[0]["num_rollouts"], spent[1]["num_rollouts"]) == rollouts
    assert spent[1]["flops"] == steps[1] * 10e6
    swapped = compared(story, b, a, at)
    assert (swapped["a"]["step"], swapped["b"]["step"]) == steps[::-1]


def test_the_evaluation_that_follows_from_the_other_run_was_not_chosen(story: Story) -> None:
    """Each schedule plans evaluations at 10, 20, 30 and 40; a has ended, b was looked at early."""
    a = a_run(story, last=40, every=10, rollouts=10, flops=3e6)
    b = a_run(story, last=20, every=10, rollouts=30, flops=9e6)
    # a's last one was planned; b's at 10 follows from it.
    assert compared(story, a, b, "flops")["num_candidates"] == 1
    # b's last one, at 20, may have been chosen from four; a's at 20 follows from it.
    assert compared(story, a, b, "steps")["num_candidates"] == 4
    # Both may have been chosen where both totals are the same.
    assert compared(story, b, b, "flops")["num_candidates"] == 16


def test_a_step_of_a_retry_leads_to_an_earlier_evaluation_of_the_same_compute(
    story: Story,
) -> None:
    """b repeats ten steps: its 20 steps take as many rollouts as 30 of a."""
    a = a_run(story, last=30, every=10, rollouts=10, flops=3e6)
    b = a_run(story, last=10, every=10, rollouts=10, flops=3e6)
    for attempt, first in ((2, 1), (3, 11)):
        story.report(b, ReasonCode.TRAINER_CRASHED)
        story.launch(b)
        story.push(b, story.started(b))
        assert story.plans[b].attempt == attempt
        steps = range(first, first + 10)
        story.push(b, *(a_step(story, b, step) for step in steps))
    story.push(b, an_evaluation(story, b, 20, 0.5))
    found = compared(story, a, b, "rollouts")
    assert (found["a"]["step"], found["b"]["step"]) == (30, 20)
    assert found["b"]["spent"]["num_rollouts"] == 300


def test_amounts_that_are_not_known_are_refused(story: Story) -> None:
    known = a_run(story, last=10, every=10, rollouts=10, flops=3e6)
    server = a_run(story, last=10, every=10, rollouts=10, flops=None)
    older = story.running()
    story.push(older, story.step(older, 1, {"booking": 0.5}))
    story.push(older, story.evaluation(older, 1, {"booking": 0.5}))
    with pytest.raises(NoLedger, match=f"FLOPs of run {server} are not known"):
        compared(story, known, server, "flops")
    assert compared(story, known, server, "tokens")["at"] == "tokens"
    with pytest.raises(NoLedger, match=f"run {older} did not count"):
        compared(story, known, older, "rollouts")
    # Nobody evaluated the run with the ledger at step 1 or before, except at 0.
    assert compared(story, known, older, "steps")["a"]["step"] == 0
    assert compared(story, known, older, None)["b"]["spent"] is None


def test_a_run_without_an_evaluation_below_the_total_is_refused(story: Story) -> None:
    late, early = story.running(), story.running()
    story.push(late, an_evaluation(story, late, 30, 0.5))
    story.push(early, an_evaluation(story, early, 10, 0.5))
    with pytest.raises(NoSuchEval, match=f"{late} has no evaluation at or below 10 steps"):
        compared(story, late, early, "steps")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"at": "dollars"}, 422, "There are steps, rollouts, tokens, flops"),
        ({"at": "flops", "a": "RUN@10"}, 422, "leave @STEP out"),
        ({"at": "flops"}, 404, "FLOPs of run"),
        ({"at": "tokens"}, 200, ""),
        ({"at": "tokens", "b": "run_nowhere"}, 404, ""),
    ],
)
def test_the_route_refuses_in_a_sentence(
    served: Served, story: Story, query: dict[str, str], status: int, words: str
) -> None:
    run_id = a_run(story, last=10, every=10, rollouts=10, flops=None)
    chosen = {"a": "RUN", "b": "RUN"} | query
    chosen = {name: value.replace("RUN", run_id) for name, value in chosen.items()}
    with served.client() as client:
        response = client.get("/v1/compare", params=chosen)
    assert response.status_code == status, response.text
    assert words in response.text
