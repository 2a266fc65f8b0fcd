"""The figures on the page of verdicts are those of the benchmark's file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hillclimb.stats.intervals import interval
from hillclimb.stats.verdicts.pairings import judge_printed
from hillclimb.stats.verdicts.printed import PrintedRate, PrintedRow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verdicts.md").read_text()
FACTS = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text())
EARLY = json.loads((ROOT / "benchmarks" / "results" / "early_stop.json").read_text())
EARLY_NULL = json.loads((ROOT / "benchmarks" / "results" / "early_stop_null.json").read_text())
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


def test_null_runs_of_early_stops_are_those_of_the_file_and_keep_the_promised_errors() -> None:
    by_looks = {each["looks"]: each for each in EARLY_NULL["null"]}
    kinds = [by_looks[name] for name in ("end", "tenth", "task")]
    assert f"false IMPROVED under v2, {EARLY_NULL['num_runs']:,} null runs" in PAGE
    for name, key in {
        "last checkpoint": "last_checkpoint",
        "any of ten checkpoints": "any_checkpoint",
        "any of 14 environments, for any checkpoint": "any_environment",
    }.items():
        shown = " | ".join(f"{100 * each[key]:.2f} %" for each in kinds)
        assert f"| {name} | {shown} |" in PAGE
        assert all(each[key] <= (0.10 if key == "any_environment" else 0.05) for each in kinds)
    tasks = " | ".join(f"{100 * each['tasks']:.1f} %" for each in kinds)
    assert f"| share of the tasks used | {tasks} |" in PAGE
    checked = f"for {EARLY_NULL['num_checked']} evaluations, {EARLY_NULL['num_checked_early']} of"
    assert checked in PAGE


def test_the_power_of_early_stops_is_that_of_the_files() -> None:
    for each in EARLY_NULL["power"]:
        cells = [f"{100 * each[key]:.1f} %" for key in ("v1", "complete", "early", "tasks")]
        fixed = each["fixed_tasks_for_80_percent"]
        assert f"| +{100 * each['gain']:.0f} | {' | '.join(cells)} | {fixed} |" in PAGE
        assert each["early"] >= each["complete"]
    at_15 = EARLY_NULL["power"][-1]
    assert (at_15["gain"], at_15["tasks"] <= 0.40) == (0.15, True)
    assert f"{EARLY['num_runs']:,} evaluations of each gain" in PAGE
    rows = {(each["gain"], each["concurrency"], each["futility"]): each for each in EARLY["shares"]}
    for gain in sorted({gain for gain, _, _ in rows}):
        slow, fast, futile = (rows[gain, *key] for key in ((8, None), (32, None), (8, 0.1)))
        words = [_percent(slow[key]) for key in ("improved_if_complete", "improved")]
        cells = [_percent(slow["tasks"]), _percent(slow["rollouts"]), _percent(fast["rollouts"])]
        cells += [_percent(futile["tasks"]), f"{100 * futile['lost_by_futility']:.1f}"]
        name = f"+{100 * gain:.0f}" if gain else "0"
        assert f"| {name} | {words[0]} → {words[1]} % | {' % | '.join(cells)} % |" in PAGE


def _percent(share: float) -> str:
    return "100" if share == 1.0 else f"{100 * share:.1f}"


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


def test_the_exact_coverage_of_whole_trials_is_that_of_the_file() -> None:
    facts = json.loads((ROOT / "benchmarks" / "results" / "whole_trials.json").read_text())
    low = [cell for cell in coverage_cells() if cell["covered"] < 0.93]
    assert [each["measured"] for each in facts["low_cells"]] == [each["covered"] for each in low]
    exact = " % and ".join(f"{100 * each['exact']:.2f}" for each in facts["low_cells"])
    assert f"the exact coverage is {exact} %" in PAGE
    for each in facts["low_cells"]:
        shown = f"{100 * each['measured']:.2f} ± {100 * each['standard_error']:.2f} %"
        assert shown in PAGE
        assert abs(each["measured"] - each["exact"]) < 2.0 * each["standard_error"]
        assert interval_covers_exactly(each["num_tasks"], each["truth"]) == each["exact"]
    for name, method in facts["methods"].items():
        assert f"| {name} | {100 * method['least']:.1f} % | {100 * method['most']:.1f} % |" in PAGE
        assert 30 in method["sizes_outside"]
        assert max(method["sizes_outside"]) >= 40
    assert f"from {max(facts['methods']['ours']['sizes_outside']) + 1} trials on" in PAGE


def interval_covers_exactly(num_tasks: int, truth: float) -> float:
    """Return the chance that the service's interval contains the truth, a trial per task."""
    total = 0.0
    for passed in range(num_tasks + 1):
        values = [1.0] * passed + [0.0] * (num_tasks - passed)
        low, high = interval(values, max_trials=num_tasks)
        if low <= truth <= high:
            ways = math.comb(num_tasks, passed)
            total += ways * truth**passed * (1.0 - truth) ** (num_tasks - passed)
    return round(total, 5)


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
