"""Text of a server is printed as it is."""

from __future__ import annotations

import pytest

from hillclimb.cli.terminal.console import print_error, print_table, print_text, table

MODEL = "model s-b5ac:train:0 is not in memory"


def test_words_between_colons_stay_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A model of a Tinker server is named so, and `:train:` is one of rich's emoji."""
    print_text(MODEL)
    print_table(table(["MODEL"], [[MODEL]]))
    print_error(ValueError(MODEL), as_json=False)
    printed = capsys.readouterr()
    assert printed.out.count(MODEL) == 2
    assert printed.err == f"error: {MODEL}\n"
