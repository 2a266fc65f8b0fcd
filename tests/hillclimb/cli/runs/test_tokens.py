"""`hillclimb trajectories --tokens`: gaps and turns of a rollout, or the tokens of a turn."""

from __future__ import annotations

import pytest

from hillclimb.blobs.disk import DiskStore
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json
from tests.hillclimb.stats.trajectories.stored_tokens import (
    learned,
    not_learned,
    store_trajectories,
    store_values,
    store_vocabulary,
    trajectory,
)

FIRST = "1/1/train/train/booking/eval/t/0/0"
SECOND = "1/1/train/train/booking/eval/t/1/0"


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}, tasks=2))
    store_trajectories(blobs, run_id, [trajectory(f"booking-{task}") for task in range(2)])
    store_values(blobs, run_id, [learned(FIRST), not_learned(SECOND)])
    store_vocabulary(blobs, run_id, [" Hi", "[bold]ca\x1b", [0xC3], [0xA9], "\n", "a", "b", "ok"])
    return run_id


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_the_summary_has_the_largest_gaps_and_a_line_per_turn(hc: Invoke, run_id: str) -> None:
    result = hc("trajectories", run_id, "--show", FIRST, "--tokens")
    assert result.exit_code == 0, result.output
    assert "The learner scored the drawn tokens in step 1" in result.stdout
    printed = rows(result.stdout)
    # Neither markup nor a control character of a token reaches the terminal.
    assert ["1", "2", "'[bold]ca\\x1b'", "-0.5", "0", "0.5", "1.5", "3"] in printed
    assert ["1", "3", "bytes", "c3", "-1", "-1.25", "-0.25", "0", "3"] in printed
    assert ["prompt", "2", "0", "-", "-", "-"] in printed
    assert ["1", "4", "2", "0.375", "0.5", "0.75", "3"] in printed


def test_one_turn_is_printed_token_by_token(hc: Invoke, run_id: str) -> None:
    printed = rows(hc("trajectories", run_id, "--show", FIRST, "--tokens", "--turn", "2").stdout)
    assert ["6", "'ok'", "-0.25", "-0.249", "0.000977", "2", "4"] in printed
    assert not [row for row in printed if row[0] == "5"]


def test_as_json_it_is_one_page_of_all_tokens(
    hc: Invoke, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hillclimb.cli.runs.tokens.NUM_PER_PAGE", 3)
    page = from_json(hc("trajectories", run_id, "--show", FIRST, "--tokens", "--json"))
    assert [token["position"] for token in page["data"]] == list(range(8))
    assert page["next_start"] is None
    assert page["learner"]["state"] == "learned"


def test_without_values_it_says_why(hc: Invoke, run_id: str) -> None:
    printed = hc("trajectories", run_id, "--show", SECOND, "--tokens").stdout
    assert "took no gradient from this rollout" in " ".join(printed.split())


@pytest.mark.parametrize("options", [["--tokens"], ["--show", FIRST, "--turn", "1"]])
def test_options_without_what_they_belong_to_are_refused(
    hc: Invoke, run_id: str, options: list[str]
) -> None:
    result = hc("trajectories", run_id, *options)
    assert result.exit_code == 2
    assert "needs --" in result.stderr
