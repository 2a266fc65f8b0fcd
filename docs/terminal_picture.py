"""Turns captured terminal output into an SVG picture for the README.

    script -qec "make demo" demo.txt && .venv/bin/python docs/terminal_picture.py demo.txt OUT.svg

Only the last screenful is kept, and carriage returns and cursor movements of progress bars are
resolved by keeping what was written last.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 108
LINES = 60
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhlnsu]|\x1b\][^\x07]*\x07")


def main(source: Path, target: Path) -> None:
    """Write the picture of the last lines of `source` to `target`."""
    lines = [CONTROL.sub("", line) for line in source.read_text(errors="replace").splitlines()]
    start = max((i for i, line in enumerate(lines) if "succeeded" in line), default=0)
    kept = lines[start:][:LINES]
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in kept:
            console.print(Text.from_ansi(line), soft_wrap=True)
        target.write_text(console.export_svg(title="make demo"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
