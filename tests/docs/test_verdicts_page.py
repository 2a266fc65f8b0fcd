"""The figures on the page of verdicts are those of the benchmark's file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hillclimb.stats.verdicts.pairings import judge_printed
from hillclimb.stats.verdicts.printed import PrintedRate, PrintedRow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verdicts.md").read_text()
FACTS = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text())
INTERVALS = json.loads((ROOT / "benchmarks" / "results" / "interval_coverage.json").read_text())


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
    cells = coverage_cells()
    assert f"most of {len(cells):,} kinds" in PAGE
    for size in (10, 30, 60, 200):
        of_size = [cell for cell in cells if cell["num_tasks"] == size]
        middle = [
            [cell["covered"] for cell in of_size if is_middle(cell) and cell["k"] == k]
            for k in (1, 3, 8)
        ]
        rest = [
            min(cell["covered"] for cell in of_size if not is_middle(cell) and cell["k"] == k)
            for k in (1, 3, 8)
        ]
        shown = [
            f"{100 * min(each):.1f} to {100 * max(each):.1f} %" if each else "–" for each in middle
        ]
        shown += [f"{100 * least:.1f} %" for least in rest]
        assert f"| {size} | {' | '.join(shown)} |" in PAGE
    low = [cell for cell in cells if cell["covered"] < 0.93]
    assert f"The {len(low)} kinds below 93 %" in PAGE
    assert all(cell["num_tasks"] == 30 and cell["num_samples"] == cell["k"] == 8 for cell in low)
    assert max(cell["covered"] for cell in cells if is_middle(cell)) <= 0.97


def test_the_length_of_intervals_and_wilsons_exact_coverage_are_those_of_the_file() -> None:
    cells = [c for c in coverage_cells() if 1 <= c["num_tasks"] * c["truth"] <= c["num_tasks"] - 1]
    middle = [cell["width"] for cell in cells if is_middle(cell)]
    rest = [cell["width"] for cell in cells if not is_middle(cell)]
    assert f"{median(middle):.2f} times as long in the median of the middle" in PAGE
    assert f"and {max(middle):.2f} times at most" in PAGE
    assert f"{median(rest):.2f} times in the median; at most {max(rest):.2f} times" in PAGE
    exact = {
        size: f"{100 * low:.1f} to {100 * high:.1f} %"
        for size, (low, high) in INTERVALS["wilson"].items()
    }
    assert f"computed exactly, in {exact['30']} of evaluations" in PAGE
    assert f"of 60 tasks in {exact['60']}" in PAGE


def test_the_printed_table_is_judged_as_the_page_says() -> None:
    section = PAGE.split("## Printed tables")[1].split("## Equal compute")[0]
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if "% →" in line and line.startswith("|")
    ]
    rows = [
        PrintedRow(name=name, before=PrintedRate.parse(before), after=PrintedRate.parse(after))
        for name, _, rates, *_ in shown
        for before, after in [rates.split(" → ")]
    ]
    v1, v2 = (judge_printed(rows[:-1], rows[-1], max_tasks=30, rule=rule) for rule in ("v1", "v2"))
    assert v1.overall is not None
    assert v2.overall is not None
    judged = zip((*v1.rows, v1.overall), (*v2.rows, v2.overall), shown, strict=True)
    for old, new, (_, tasks, _, p_value, adjusted, words_v1, words_v2) in judged:
        assert tasks == span([counts.num_tasks for counts in old.counts])
        assert p_value == span(old.p_value)
        assert adjusted == span(new.p_adjusted)
        assert (words_v1, words_v2) == (" or ".join(old.verdicts), " or ".join(new.verdicts))


def span(values: Sequence[float] | None) -> str:
    assert values
    low, high = (
        str(end) if isinstance(end, int) else f"{end:.2g}" for end in (min(values), max(values))
    )
    return low if low == high else f"{low}–{high}"


def coverage_cells() -> list[dict[str, Any]]:
    return [dict(zip(INTERVALS["columns"], cell, strict=True)) for cell in INTERVALS["cells"]]


def is_middle(cell: dict[str, Any]) -> bool:
    return cell["num_tasks"] >= 30 and 0.2 <= cell["truth"] <= 0.8
