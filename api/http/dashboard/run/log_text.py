"""The text of a log without what only a terminal understands."""

from __future__ import annotations

import re

_SEQUENCES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)"  # colours and movements of the cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles and links
    r"|[@-Z\\-_]?)"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain_text(text: str) -> str:
    """Return the text without escape sequences; a line that was redrawn shows its last state."""
    without = _SEQUENCES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in without.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))
