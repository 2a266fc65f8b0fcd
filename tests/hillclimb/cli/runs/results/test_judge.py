"""`hillclimb judge`: a Markdown table in, ranges in 80 columns out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.client.errors import TableTextError
from hillclimb.client.imports.printed_table import read_printed_table
from tests.hillclimb.cli.conftest import Invoke, from_json

LOG = """
| Version | Tasks | Status |
|---------|-------|--------|
| v0.1 | 3,603 | 0% |

**Results (Step 80):**

| Environment | Step 0 | Step 80 | Delta | Status |
|-------------|--------|---------|-------|--------|
| booking | 53.8% | 57.7% | +3.8% | FLAT |
| fira | 40.0% | 40.0% | +0.0% | FLAT |
| github | 46.7% | **70.0%** | **+23.3%** | IMPROVED |
| hubspot | 100.0% | 100.0% | +0.0% | SATURATED |
| outlook | 100.0% | 100.0% | +0.0% | SATURATED |
| reddit | 66.7% | 66.7% | +0.0% | FLAT |
| ticketmaster | 3.6% | 7.1% | +3.6% | FAILING |
| zillow | 50.0% | 50.0% | +0.0% | FLAT |
| **OVERALL** | **43.1%** | **50.9%** | **+7.8%** | |
"""


def test_a_log_is_judged_by_its_first_table_of_rates(hc: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "experiments.md"
    path.write_text(LOG)
    shown = hc("judge", str(path), "--rule", "v1").stdout
    lines = shown.splitlines()
    assert max(len(line) for line in lines[:10]) <= 80
    assert " ".join(lines[3].split()) == "github 30 46.7% → 70.0% 0.016–0.23 improved or flat"
    assert lines[9].split()[:5] == ["all", "116", "43.1%", "→", "50.9%"]
    judged = from_json(hc("judge", str(path), "--json"))
    assert judged["rows"][2]["p_adjusted"] == [0.125, 1.0]
    assert judged["overall"]["counts"] == [{"num_tasks": 116, "before": 50, "after": 59}]


def test_numbers_of_tasks_are_read_and_other_overall_rates_named(
    hc: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "table.md"
    path.write_text("|env|n|before|after|\n|-|-:|-|-|\n|[x]|19|~5%|52.6 %|\n|all|19|90%|95%|\n")
    shown = hc("judge", str(path)).stdout
    assert "[x]" in shown
    assert "90% → 95% over all tasks are not the rates of the rows" in shown
    judged = from_json(hc("judge", str(path), "--json"))
    assert judged["rows"][0]["counts"] == [{"num_tasks": 19, "before": 1, "after": 10}]
    assert judged["overall"]["verdicts"] == []


def test_what_is_no_table_is_an_error_in_a_sentence(hc: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("| env | before | after |\n|--|--|--|\n| github | half | most |\n")
    refused = hc("judge", str(path))
    assert refused.exit_code != 0
    assert "no table has pass rates such as 46.7% or 14/30" in refused.stderr
    path.write_bytes(b"\xff\xfe|")
    assert "is no text" in hc("judge", str(path)).stderr
    path.write_text("| env | before | after |\n|--|--|--|\n| github | 46.7% | 70.1% |\n")
    assert "no number of tasks up to 30" in hc("judge", str(path)).stderr
    assert "No such file" in hc("judge", str(tmp_path / "none.md")).stderr


def test_cells_are_read_without_their_decoration() -> None:
    body = read_printed_table("| a | b | c | tasks |\n| `github` | **14/30** | _21/30_ | many |")
    assert body == {
        "rows": [{"env_key": "github", "before": "14/30", "after": "21/30", "num_tasks": None}]
    }
    with pytest.raises(TableTextError):
        read_printed_table("")
    with pytest.raises(TableTextError):
        read_printed_table("| a | 1% | 2% |")
