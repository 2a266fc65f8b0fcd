"""docs/patterns.md lists the patterns that the code detects."""

import json
from pathlib import Path

from hillclimb.stats.trajectories.patterns.registry import PATTERNS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "patterns.md").read_text()


def test_the_page_lists_every_pattern_with_its_definition() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{each.name}` | {each.severity} | {each.definition} |" for each in PATTERNS.values()
    ]


def test_the_time_of_a_search_is_that_of_the_file() -> None:
    facts = json.loads((ROOT / "benchmarks" / "results" / "rescore.json").read_text())
    assert f"{facts['searched']:,} rollouts took {facts['search_seconds']} s" in PAGE
    assert facts["search_seconds"] < 60.0
    graded = f"{facts['rollouts']:,} rollouts, written by the trainer's own code, took"
    assert f"{graded} {facts['seconds']} s" in (ROOT / "docs" / "verdicts.md").read_text()
