"""Settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field

from hillclimb.minifleet.server.faults.plan import WireFaults

REGIONS = ("us-west-1", "us-east-1", "eu-west-2")
TEAM_ID = "minifleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class MinifleetSettings:
    """One account on one server."""

    api_key: str = "minifleet"
    instance_limit: int = 100
    default_ttl_s: int = 3600
    """Lifetime of an instance whose request names none (seconds)."""
    tasks_per_env: int = 50
    """Tasks of each environment and split in a listing without keys; every task can be read by its
    key."""
    mcp_sessions: bool = False
    """Return session ids from MCP's `initialize`, which costs clients a few more requests."""
    runner_token: str | None = None
    """If set, an instance's manager answers 404 to requests without it in `X-Runner-Token`."""
    faults: WireFaults = field(default_factory=WireFaults)
