"""Directories and interpreter with which a runner or node starts its trainers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerHost:
    """Directories and interpreter of one runner or node."""

    runs_dir: Path
    """Parent of the run directories."""
    own_dir: Path
    """The runner's or node's own files; processes it starts carry this path as their mark."""
    blobs_url: str
    trainer_python: str
    """The Python interpreter of the trainer's environment."""
    holder: str = "runner"
    """`runner` or `node`, for messages."""
