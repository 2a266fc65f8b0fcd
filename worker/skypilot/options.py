"""What the operator gives to clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the operator gives to clusters."""

    api_url: str
    """The API as nodes reach it."""
    blobs_url: str
    """The blob store as nodes reach it."""
    secret: str = field(repr=False)
    """The service's own, of which exchange codes are made."""
    wheel: Path
    """Of this very code."""
    locks: tuple[Path, Path]
    """The data plane's pinned packages, on machines without GPUs and with."""
    node_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that trainers need: credentials of platforms and of the blob store."""
