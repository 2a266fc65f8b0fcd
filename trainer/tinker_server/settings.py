"""Settings of the server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.tinker_server.accounts import Accounts

API_KEY = "tml-local"
"""Default key; the SDK accepts only keys with this prefix, `tml-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerServerSettings:
    """One model, one directory."""

    model_dir: Path
    model_name: str
    """Name of the model for clients."""
    tokenizer_id: str | None = None
    """What a client loads the model's tokenizer by; None: the model's directory on this machine."""
    state_dir: Path
    """Directory of everything that outlives the process."""
    api_key: str = API_KEY
    """The key of clients; several, with commas between, are accounts (`accounts`)."""
    max_models: int = 4
    """Adapters in training at once."""
    max_rank: int = 64
    session_timeout_s: float = 300.0
    """A client without requests for so long loses its adapters (saved checkpoints stay)."""
    max_samples: int = 32
    """Samples drawn at once; more wait."""
    max_unnamed_bytes: int = 8 * 2**30
    """Disk space of the weights of unnamed sampling sessions; the least recently used go first."""
    max_context: int | None = None
    """Longest sequence (tokens); None: the model's positions."""

    @property
    def accounts(self) -> Accounts:
        """The accounts of the keys."""
        return Accounts(tuple(filter(None, self.api_key.split(","))))
