"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

API_KEY = "tml-local"
"""The key where none is given; the SDK takes none that begins otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One model, one directory."""

    model_dir: Path
    model_name: str
    """As clients name it."""
    state_dir: Path
    """Where everything is that outlives the process."""
    api_key: str = API_KEY
    max_models: int = 4
    """Adapters in training at once."""
    max_rank: int = 64
    session_timeout_s: float = 300.0
    """A client that was silent for so long loses its adapters (what it kept stays)."""
    max_samples: int = 32
    """Samples drawn at once; more wait."""
    max_context: int | None = None
    """Longest sequence (tokens); None: what the model's positions allow."""
