"""Reads what was appended to a file since the last time."""

from __future__ import annotations

from pathlib import Path


class Tail:
    """A position in a growing file. A missing file is an empty one."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def lines(self, *, max_bytes: int, max_lines: int) -> list[bytes]:
        """Return the next whole lines without moving: at least one when there is one."""
        found: list[bytes] = []
        size = 0
        if not self.path.exists():
            return found
        with self.path.open("rb") as handle:
            handle.seek(self.offset)
            for line in handle:
                size += len(line)
                if not line.endswith(b"\n") or (found and size > max_bytes):
                    break
                found.append(line)
                if len(found) >= max_lines:
                    break
        return found

    def advance(self, lines: list[bytes]) -> None:
        """Move behind lines that were returned."""
        self.offset += sum(map(len, lines))
