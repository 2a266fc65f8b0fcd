"""The trainer's probe file: a worker that reads it shares the trainer's disk."""

from __future__ import annotations

from pathlib import Path

DISK_PROBE = "shared-disk"
"""Name of the file, in the attempt's directory."""


def has_probe(attempt_dir: Path, nonce: str) -> bool:
    """Tell whether this machine has the trainer's probe file, with `nonce` in it."""
    try:
        return (attempt_dir / DISK_PROBE).read_text() == nonce
    except OSError:
        return False
