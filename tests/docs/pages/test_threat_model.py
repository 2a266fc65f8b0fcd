"""Each defence of the threat model, and each attack that was tried, names a test that there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the rows of a section's table, without its head."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines][1:]


def test_every_attack_names_a_test_or_says_that_there_is_none() -> None:
    rows = rows_of("Attacks and defences")
    assert len(rows) > 12
    for *_, test in rows:
        named = re.fullmatch(r"`(tests/\S+)`", test)
        assert named or test == "–"
        assert named is None or (ROOT / named[1]).exists(), test


def test_every_attack_that_was_tried_says_what_became_of_it_and_names_its_test() -> None:
    rows = rows_of("Attacks that were tried")
    assert len(rows) >= 12
    assert len({tried for tried, *_ in rows}) == len(rows)
    for tried, result, test in rows:
        assert re.match(r"(held|broke)\b", result), tried
        # What broke was mended, and the row says how.
        assert result.startswith("held") or ". " in result or len(result) > len("broke: ") + 20
        named = re.fullmatch(r"`(tests/\S+\.py)`", test)
        assert named, tried
        assert "def test_" in (ROOT / named[1]).read_text(), test
