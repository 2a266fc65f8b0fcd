"""Each defence of the threat model names a test that there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def test_every_attack_names_a_test_or_says_that_there_is_none() -> None:
    table = PAGE.partition("## Attacks and defences")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 12
    for *_, test in rows:
        named = re.fullmatch(r"`(tests/\S+)`", test.strip())
        assert named or test.strip() == "–"
        assert named is None or (ROOT / named[1]).exists(), test
