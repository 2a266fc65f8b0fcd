"""`hillclimb metrics` of a long run reads a part of the points, and says what it prints exactly."""

from pathlib import Path

import pytest

import hillclimb.cli.runs.results.metrics as command
from api.tables import Metric
from api.tables.bulk import upsert_rows
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def run_id(story: Story, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(command, "MAX_DRAWN", 10)
    made = story.running()
    key = {"run_id": made, "decoding": "train", "attempt": 1}
    rows = [
        {**key, "name": name, "step": step, "value": -8.5 if step == 77 else float(step)}
        for name in ("loss", "kl")
        for step in range(1, 101)
    ]
    with story.database.transaction() as session:
        upsert_rows(session, Metric, rows)
    return made


def test_a_list_reads_a_part_and_one_series_all_of_its_points(hc: Invoke, run_id: str) -> None:
    listed = hc("metrics", run_id).stdout
    assert {line.split()[2] for line in listed.splitlines() if "train" in line} == {"10"}
    alone = hc("metrics", run_id, "loss").stdout
    assert "lowest -8.5 at step 77" in alone
    assert " 100 " in alone


def test_points_are_written_all_or_as_many_as_wanted(
    hc: Invoke, run_id: str, tmp_path: Path
) -> None:
    for options, count in (((), 100), (("--max-points", "25"), 25)):
        (series,) = from_json(hc("metrics", run_id, "loss", "--json", *options))["data"]
        assert len(series["points"]) == count
        hc("metrics", run_id, "loss", "--csv", str(tmp_path / "m.csv"), *options)
        header, *points = (tmp_path / "m.csv").read_text().splitlines()
        assert "value" in header
        assert len(points) == count
