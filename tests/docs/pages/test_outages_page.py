"""Each row of the outages names a test that there is, and every wire that is cut has its row."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.compose.deployment import WIRED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "outages.md").read_text()
NAMES = {"postgres": "PostgreSQL", "valkey": "broker", "api": "API"}
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")][1:]


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 12
    for *_, test in ROWS:
        named = re.fullmatch(r"`(tests/\S+)`", test.strip())
        assert named, test
        assert (ROOT / named[1]).exists(), test


def test_every_pair_whose_wire_is_cut_has_its_row() -> None:
    cut = {between.strip() for between, *_, test in ROWS if "compose" in test}
    assert cut == {f"{NAMES.get(one, one)} and {NAMES[other]}" for one, other in WIRED}
