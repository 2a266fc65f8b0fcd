"""docs/patterns.md lists the patterns that the code detects."""

from pathlib import Path

from hillclimb.stats.trajectories.patterns.registry import PATTERNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "patterns.md"


def test_the_page_lists_every_pattern_with_its_definition() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{each.name}` | {each.severity} | {each.definition} |" for each in PATTERNS.values()
    ]
