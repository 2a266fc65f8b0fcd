"""The page of guards names every guard, and its figures are those of the benchmarks' files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hillclimb.spec.monitoring.guards import GUARDS, HopelessGuard, RewardCollapseGuard

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guards.md").read_text()
GAINS = (0.0, 0.05, 0.1, 0.2)
KINDS = {"off": "off", "on": "on", "on, rollouts without a grade": "on, 5 % without a grade"}


def facts(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (ROOT / "benchmarks" / "results" / f"{name}.json").read_text()
    )
    return found


def percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def hopeless_rows() -> Iterator[str]:
    for each in facts("hopeless")["results"]:
        learning = each["learning"]
        if each["num_tasks"] != 300 or learning["gain"] not in GAINS:
            continue
        when = f"from {100 * learning['start']:.0f} % of the steps on"
        if not learning["start"]:
            when = "first fast, then slowly" if learning["shape"] == "early" else "evenly"
        gain = f"+{100 * learning['gain']:.0f}" if learning["gain"] else "0"
        cells = [percent(each[key]) for key in ("improved", "tripped", "false_stops")]
        cells.append(percent(each["steps_saved"]))
        yield f"| {gain} | {when if learning['gain'] else '–'} | " + " | ".join(cells) + " |"


def collapse_rows() -> Iterator[str]:
    for each in facts("reward_collapse")["results"]:
        change = f"falls by {each['drop']:g} after step 60" if each["drop"] else "keeps its level"
        change = f"rises by {each['rise']:g}" if each["rise"] else change
        delay = "–" if each["median_delay"] is None else f"{each['median_delay']:.0f} steps"
        cells = (change, f"{each['correlation']:g}", percent(each["tripped"]), delay)
        yield f"| {' | '.join(cells)} |"


def ingest_rows() -> Iterator[str]:
    for kind in ("step", "evaluation"):
        for name, label in KINDS.items():
            figures = facts("guards_ingest")[kind][name]
            yield (
                f"| {kind} | {label} | {figures['median_ms']:.1f} ms | {figures['p95_ms']:.1f} ms"
                f" | {figures['ratio']:.2f} |"
            )


def test_the_page_names_every_guard_in_the_order_of_evaluation() -> None:
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert [name for name in rows if name in GUARDS] == list(GUARDS)


def test_the_figures_of_hopeless_runs_are_those_of_the_file() -> None:
    assert facts("hopeless")["guard"] == HopelessGuard().model_dump()
    assert [row for row in hopeless_rows() if row not in PAGE] == []


def test_runs_that_learn_from_the_beginning_are_hardly_ever_stopped() -> None:
    at_once = [each for each in facts("hopeless")["results"] if not each["learning"]["start"]]
    assert max(each["false_stops"] for each in at_once) <= 0.001


def test_the_figures_of_collapsing_rewards_are_those_of_the_file() -> None:
    assert facts("reward_collapse")["guard"] == RewardCollapseGuard().model_dump()
    assert [row for row in collapse_rows() if row not in PAGE] == []
    null = [each for each in facts("reward_collapse")["results"] if not each["drop"]]
    assert max(each["tripped"] for each in null) <= 0.001


def test_the_cost_at_ingest_is_that_of_the_file() -> None:
    assert [row for row in ingest_rows() if row not in PAGE] == []
