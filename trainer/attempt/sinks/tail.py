"""Tail of a growing file: reads the lines appended since the last position."""

from __future__ import annotations

from pathlib import Path


class Tail:
    """A position in a growing file. A missing file is an empty one."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def lines(self, *, max_bytes: int, max_lines: int) -> list[bytes]:
        """Return the next complete lines without advancing: at least one, if there is one."""
        whole_lines: list[bytes] = []
        size = 0
        if not self.path.exists():
            return whole_lines
        with self.path.open("rb") as handle:
            handle.seek(self.offset)
            for line in handle:
                size += len(line)
                if not line.endswith(b"\n") or (whole_lines and size > max_bytes):
                    break
                whole_lines.append(line)
                if len(whole_lines) >= max_lines:
                    break
        return whole_lines

    def advance(self, lines: list[bytes]) -> None:
        """Advance past lines that `lines` returned."""
        self.offset += sum(map(len, lines))
