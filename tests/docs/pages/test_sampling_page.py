"""The measured effect of the curriculum on the page of sampling is that of the benchmark's file."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sampling.md").read_text()
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "curriculum.json").read_text())


def test_every_row_has_the_figures_of_the_file() -> None:
    assert f"rollouts until {100 * RESULTS['goal']:.1f} % |" in PAGE
    for name, arm in RESULTS["arms"].items():
        change = arm["change"]
        words = "–"
        if change:
            value, low, high = (f"{100 * each:+.1f}" for each in change)
            words = f"{value} ({low} to {high})"
        row = f"| {name} | {100 * arm['pass_at_1']:.1f} % | {words} | {arm['rollouts']:,.0f} |"
        row += f" {100 * arm['learned_share']:.1f} % | {arm['rollouts_to_goal']:,.0f} |"
        assert row in PAGE, row


def test_the_sentences_follow_from_the_figures() -> None:
    arms = RESULTS["arms"]
    assert RESULTS["word"] == "inconclusive"
    assert all(arm["change"][1] < 0 < arm["change"][2] for arm in arms.values() if arm["change"])
    assert (
        round(100 * (1 - arms["filter and curriculum"]["rollouts"] / arms["filter"]["rollouts"]))
        == 10
    )
    saved = [
        1 - arms["curriculum"]["rollouts_to_goal"] / arms["even shares"]["rollouts_to_goal"],
        1 - arms["filter and curriculum"]["rollouts_to_goal"] / arms["filter"]["rollouts_to_goal"],
    ]
    assert [f"{100 * each:.1f}" for each in saved] == ["12.5", "13.6"]
    dearer = 1 - arms["even shares"]["rollouts_to_goal"] / arms["filter"]["rollouts_to_goal"]
    assert round(100 * dearer) == 40
