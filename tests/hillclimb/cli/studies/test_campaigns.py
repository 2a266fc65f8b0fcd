"""`hillclimb campaign` against the real application, at 80 columns."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.api.admission.campaigns.conftest import body, evaluate
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(body(repeats=2)))
    return str(path)


def test_a_campaign_is_created_looked_at_and_tabulated(
    hc: Invoke, story: Story, spec_file: str
) -> None:
    created = from_json(hc("campaign", "create", spec_file, "--set", "name=tiny", "--json"))
    for cell in created["cells"]:
        rate = 1.0 if cell["model"] == "b" else 0.25
        decodings = ("sampled", "greedy") if cell["repeat"] == 1 else ("sampled",)
        evaluate(story, cell["run_id"], rate, decodings=decodings)
    listed = hc("campaign", "list").stdout
    assert created["id"] in listed
    assert "tiny" in listed
    assert "4 done" in listed
    shown = hc("campaign", "show", created["id"]).stdout
    assert created["cells"][3]["run_id"] in shown
    table = hc("campaign", "table", created["id"]).stdout
    assert "baseline a; all cells are done" in table
    rows = [line.split() for line in table.splitlines() if line.startswith("b ")]
    assert [row[2:4] for row in rows] == [["sampled", "2/2"], ["greedy", "1/1"]]
    assert all(row[-1] == "IMPROVED" for row in rows)
    assert all(len(line) <= 80 for line in table.splitlines()), table


def test_a_blocked_cell_says_why(hc: Invoke, story: Story, spec_file: str) -> None:
    result = hc("campaign", "create", spec_file, "--set", "datasets=[nowhere@1]")
    assert result.exit_code == 0, result.output
    assert "4 blocked" in result.stdout
    assert "cell 1: data.dataset:" in result.stdout


def test_cells_are_cancelled_and_launched_again(hc: Invoke, story: Story, spec_file: str) -> None:
    created = from_json(hc("campaign", "create", spec_file, "--json"))
    assert "4 retryable" in hc("campaign", "cancel", created["id"]).stdout
    again = from_json(hc("campaign", "retry", created["id"], "--json"))
    assert [cell["num_launches"] for cell in again["cells"]] == [2] * 4


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("campaign", "show", "camp_nowhere"), 7, "no campaign 'camp_nowhere'"),
        (("campaign", "create", "/nowhere.yaml"), 2, "cannot read"),
        (("campaign", "create", "FILE", "--set", "repeats=0"), 6, "repeats"),
        (("campaign", "table", "camp_nowhere", "-k", "0"), 2, "-k"),
    ],
)
def test_mistakes_are_sentences_with_their_exit_codes(
    hc: Invoke, story: Story, spec_file: str, arguments: tuple[str, ...], code: int, part: str
) -> None:
    result = hc(*(spec_file if each == "FILE" else each for each in arguments))
    assert (result.exit_code, part in result.stderr) == (code, True), result.stderr
