"""`hillclimb compute`, and `compare --at`."""

from __future__ import annotations

import pytest

from hillclimb.cli.runs.results.compute import si
from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.story import Story
from tests.api.results.spending import a_step, an_evaluation
from tests.hillclimb.cli.conftest import Invoke, from_json


def a_run(story: Story, steps: int) -> str:
    run_id = story.running()
    story.push(run_id, an_evaluation(story, run_id, 0, 0.2))
    for step in range(1, steps + 1):
        story.push(run_id, a_step(story, run_id, step))
    story.push(run_id, an_evaluation(story, run_id, steps, 0.6))
    return run_id


def test_the_ledger_fits_a_terminal_and_says_what_was_rejected(hc: Invoke, story: Story) -> None:
    assert "nothing was counted yet" in hc("compute", story.running()).stdout
    run_id = a_run(story, 4)
    shown = hc("compute", run_id).stdout
    assert max(map(len, shown.splitlines())) <= 80
    training = next(line for line in shown.splitlines() if line.startswith("training  "))
    assert training.split() == ["training", "40", "16", "24", "6k", "2.4k", "16M"]
    sentence = " ".join(shown.split())
    assert "rejected: 12 replaced by dynamic sampling, 4 without a grade, 8 without" in sentence
    assert "8 tries lost to infra errors; 0 steps repeated, 0 interrupted" in sentence
    last = shown.splitlines()[-1].split()
    assert last == ["4", "sampled", "40", "6k", "16M"]
    assert from_json(hc("compute", run_id, "--json"))["training"]["num_rejected"] == 24
    assert hc("compute", "run_nowhere").exit_code == Exit.NOT_FOUND


def test_a_trainer_that_does_not_count_is_named(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    assert "did not count the compute of every step" in hc("compute", run_id).stdout


def test_runs_are_compared_at_equal_compute(hc: Invoke, story: Story) -> None:
    a, b = a_run(story, 4), a_run(story, 8)
    shown = hc("compare", a, b, "--at", "tokens").stdout
    assert f"{a}@4\n   trained with 40 rollouts, 6k tokens, 16MFLOP\n" in shown
    assert f"{b}@0\n   trained with 0 rollouts, 0 tokens, 0FLOP\n" in shown
    assert "the last evaluations at equal tokens" in shown
    assert hc("compare", f"{a}@4", b, "--at", "tokens").exit_code == Exit.REFUSED
    assert hc("compare", a, b, "--at", "dollars").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1k"),
        (1234, "1.23k"),
        (999_999, "1M"),
        (4.2e15, "4.2P"),
        (5e25, "5e+04Z"),
        (None, "unknown"),
    ],
)
def test_amounts_have_three_digits_and_a_prefix(value: float | None, words: str) -> None:
    assert si(value) == words
