"""`hillclimb fork` against the real application, at 80 columns."""

from __future__ import annotations

import pytest

from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def parent(story: Story) -> str:
    run_id = story.running(spec("parent"))
    story.push(run_id, story.checkpoint(run_id, 20))
    return run_id


def test_a_fork_prints_its_parent_its_start_and_what_differs(hc: Invoke, parent: str) -> None:
    made = hc("fork", f"{parent}@20", "--set", "optimizer.lr=1e-3", "--set", "data.seed=3")
    assert made.exit_code == 0, made.output
    assert f"forked from {parent}" in made.stdout
    assert f"starts at step 20 of {parent}; tasks are drawn anew" in made.stdout
    rows = [line.split() for line in made.stdout.splitlines() if line.startswith("/")]
    assert rows == [["/data/seed", "0", "3"], ["/optimizer/lr", "0.00025", "0.001"]]
    new = made.stdout.split()[0]
    assert f"forked from {parent}@20" in hc("show", new).stdout
    assert "forked from" not in hc("show", parent).stdout
    assert all(len(line) <= 80 for line in made.stdout.splitlines()[1:]), made.stdout


def test_a_repeated_fork_with_a_key_makes_one_run(hc: Invoke, parent: str) -> None:
    arguments = ("fork", parent, "--name", "twin", "--idempotency-key", "k", "--json")
    first, again = (from_json(hc(*arguments)) for _ in range(2))
    assert first["id"] == again["id"]
    assert first["name"] == "twin"
    assert first["config_diff"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("run_0123456789",), 7, "There is no run 'run_0123456789'"),
        (("{}@x",), 2, "the step after @ is a number"),
        (("{}@7",), 6, "no complete checkpoint at step 7"),
        (("{}", "--set", "optimizer.lr"), 2, "--set requires key=value"),
        (("{}", "--set", "when=2026-01-01"), 2, "a date is not allowed"),
        (("{}", "--set", "optimizer.lrr=1"), 6, "optimizer/lrr"),
    ],
)
def test_what_cannot_be_forked_is_said_in_a_sentence(
    hc: Invoke, parent: str, arguments: tuple[str, ...], code: int, part: str
) -> None:
    result = hc("fork", *(each.format(parent) for each in arguments))
    assert result.exit_code == code, result.output
    assert part in " ".join(result.stderr.split())
