"""Where a holder of trainers keeps them, and what it starts them with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A machine's directories and interpreter, as one runner or one node has them."""

    runs_dir: Path
    """Parent of the run directories."""
    own_dir: Path
    """The holder's own files; what it starts carries this path as its mark."""
    blobs_url: str
    trainer_python: str
    """The data plane's interpreter."""
    holder: str = "runner"
    """What it is called in messages."""
