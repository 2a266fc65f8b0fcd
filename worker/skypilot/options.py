"""The operator's options for all clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from api.tables.access.secrets.keyring import NO_KEYS, Keyring
from hillclimb.spec.rules.addresses import Hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Addresses, packages and secrets that the operator configures for nodes."""

    api_url: str
    """The API's address for nodes."""
    blobs_url: str
    """The blob store's address for nodes."""
    secret: str = field(repr=False)
    """The service's secret key, from which bootstrap tokens are derived."""
    wheel: Path
    """The wheel of this source tree, so that both ends run the same code."""
    locks: tuple[Path, ...]
    """Pinned packages of the trainer: files that the set-up finds under these names."""
    node_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of trainers: credentials of platforms and of the blob store."""
    secret_hosts: Hosts = field(default_factory=dict)
    """Hosts to which specs may send those of `node_secrets` that are for runs."""
    private_hosts: str = ""
    """What runs may reach there beside public addresses: the operator's setting as it stands."""
    keyring: Keyring = NO_KEYS
    """Master keys of the projects' secrets."""
