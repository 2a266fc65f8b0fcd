"""The figures on the page of verdicts are those of the benchmark's file."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verdicts.md").read_text()
FACTS = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text())


def test_the_null_runs_are_those_of_the_file_and_keep_the_promised_errors() -> None:
    null = FACTS["null"]
    rows = {
        "last checkpoint, one look": ("v1_last_checkpoint", None),
        "last checkpoint, ten looks": ("v1_looks", "v2_last_checkpoint_and_looks"),
        "best of ten checkpoints, one look": ("v1_best", None),
        "any of ten checkpoints, ten looks": ("v1_best_and_looks", "v2_best_and_looks"),
    }
    for name, (old, new) in rows.items():
        shown = f"{100 * null[new]:.1f} %" if new else "–"
        assert f"| {name} | {100 * null[old]:.1f} % | {shown} |" in PAGE
    assert f"{null['num_runs']:,} null runs" in PAGE
    assert f"ten looks: {100 * null['v2_any_environment']:.2f} % under v2" in PAGE
    assert null["v2_best_and_looks"] + null["v2_last_checkpoint_and_looks"] <= 0.05
    assert null["v2_any_environment"] <= 0.10


def test_the_power_is_that_of_the_file() -> None:
    for each in FACTS["power"]:
        row = f"| +{100 * each['gain']:.0f} | {100 * each['v1']:.1f} % | {100 * each['v2']:.1f} %"
        assert f"{row} | {100 * each['share_of_tasks']:.1f} % |" in PAGE
        assert each["v2"] >= each["v1"]


def test_the_coverage_of_intervals_is_that_of_the_file() -> None:
    file = json.loads((ROOT / "benchmarks" / "results" / "interval_coverage.json").read_text())
    cells = file["cells"]
    middle = [cell["covered"] for cell in cells if 0.2 <= cell["truth"] <= 0.8]
    least = min(cell["covered"] for cell in cells)
    assert f"in {100 * min(middle):.1f} to {100 * max(middle):.1f} % of simulated" in PAGE
    assert f"and in {100 * least:.1f} % at least elsewhere" in PAGE
    assert f"({len(cells)} kinds of evaluations of 30 to 300 tasks, {file['num_draws']:,}" in PAGE
