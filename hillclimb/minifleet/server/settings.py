"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer.envs.minifleet.server.wirefaults import WireFaults

REGIONS = ("us-west-1", "us-east-1", "eu-west-2")
TEAM_ID = "minifleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One account on one server."""

    api_key: str = "minifleet"
    instance_limit: int = 100
    default_ttl_s: int = 3600
    """Life of an instance that asks for none, in seconds."""
    tasks_per_env: int = 50
    """Tasks of each environment and split that a listing without keys has; any task can be asked
    for by its key."""
    mcp_sessions: bool = False
    """Whether MCP's `initialize` gives out session ids, which costs clients a few requests more."""
    runner_token: str | None = None
    """When set, an instance's manager answers 404 to requests without it in `X-Runner-Token`."""
    faults: WireFaults = field(default_factory=WireFaults)
