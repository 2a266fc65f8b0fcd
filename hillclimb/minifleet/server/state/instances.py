"""Running instances: who holds them, when they end, and how many there may be."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from trainer.envs.minifleet.env import MinifleetEnv
from trainer.envs.minifleet.server.problems import Problem, not_found, refused
from trainer.envs.minifleet.server.strikes import Lane

Status = Literal["pending", "running", "stopped"]
EndReason = Literal["deleted", "ttl_expired", "heartbeat_missed", "start_failed"]

Kept = TypeVar("Kept")
KEPT_ENDED = 10_000
"""Ended instances that can still be asked for, and request ids that are remembered."""


class CreateRequest(BaseModel):
    """Body of `POST /v1/env/instances`; fields that mean nothing here are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    env_key: str
    env_version: str | None = None
    data_key: str | None = None
    data_version: str | None = None
    region: str | None = None
    env_variables: dict[str, JsonValue] | None = None
    run_id: str | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=7 * 86_400)] | None = None
    heartbeat_interval: Annotated[int, Field(ge=1, le=3600)] | None = None


@dataclass(slots=True, kw_only=True)
class Instance:
    """One environment that somebody holds. Times are seconds since the epoch."""

    id: str
    version: str
    region: str
    request: CreateRequest
    lane: Lane
    created_at: float
    expires_at: float
    heartbeat_at: float
    status: Status = "pending"
    ended: EndReason | None = None
    ended_at: float | None = None
    updated_at: float = 0.0
    env: MinifleetEnv | None = None
    mcp_sessions: set[str] = field(default_factory=set)

    @property
    def deadline(self) -> float | None:
        """When the next heartbeat is due; None where none was asked for."""
        interval = self.request.heartbeat_interval
        return None if interval is None else self.heartbeat_at + interval

    @property
    def is_alive(self) -> bool:
        """Whether it counts against the limit: it runs or is about to."""
        return self.status != "stopped"

    def running_env(self) -> MinifleetEnv:
        """Return the environment.

        Raises:
            Problem: 404, the instance has ended, or 503, it has not begun.
        """
        if self.env is None or self.status != "running":
            if self.status == "pending":
                raise refused(503, "not_ready", f"instance '{self.id}' starts", retryable=True)
            raise Problem(404, f"instance '{self.id}' is stopped ({self.ended})")
        return self.env


def iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@dataclass(slots=True, kw_only=True)
class Instances:
    """All instances of the account. Those past a deadline end at the next look at them.

    Args:
        clock: seconds since the epoch.
        limit: instances that may run at once.
        default_ttl_s: life of an instance that asks for none.
    """

    clock: Callable[[], float]
    limit: int
    default_ttl_s: int
    ended: Counter[str] = field(default_factory=Counter)
    """How many ended, by reason."""
    created: int = 0
    _alive: dict[str, Instance] = field(default_factory=dict)
    _gone: OrderedDict[str, Instance] = field(default_factory=OrderedDict)
    _requests: OrderedDict[str, tuple[str, str]] = field(default_factory=OrderedDict)
    _lanes: Counter[str] = field(default_factory=Counter)

    def reserve(self, request: CreateRequest, region: str, version: str) -> Instance:
        """Add a pending instance.

        Raises:
            Problem: 403, the account holds as many instances as it may.
        """
        self.sweep()
        running = len(self._alive)
        if running >= self.limit:
            raise refused(
                403,
                "instance_limit_exceeded",
                f"You have {running} running instances out of a maximum of {self.limit}."
                " Instance limit reached: close some and try again.",
                running_instances=running,
                instance_limit=self.limit,
            )
        now, data = self.clock(), f"{request.env_key}/{request.data_key}"
        instance = Instance(
            id=secrets.token_hex(8),
            version=version,
            region=region,
            request=request,
            lane=Lane(f"{data}/{self._lanes[data]}", request.env_key),
            created_at=now,
            updated_at=now,
            heartbeat_at=now,
            expires_at=now + (request.ttl_seconds or self.default_ttl_s),
        )
        self._lanes[data] += 1
        self._alive[instance.id] = instance
        self.created += 1
        return instance

    def start(self, instance: Instance, env: MinifleetEnv) -> None:
        """Let a pending instance run, unless it was ended meanwhile."""
        if instance.status == "pending":
            instance.env, instance.status = env, "running"
            instance.updated_at = instance.heartbeat_at = self.clock()

    def end(self, instance: Instance, reason: EndReason) -> None:
        """End an instance, once, and let go of its state."""
        if self._alive.pop(instance.id, None) is None:
            return
        instance.status, instance.ended, instance.env = "stopped", reason, None
        instance.ended_at = instance.updated_at = self.clock()
        instance.mcp_sessions.clear()
        self.ended[reason] += 1
        self._gone[instance.id] = instance
        _trim(self._gone)

    def find(self, instance_id: str) -> Instance:
        """Return an instance, running or ended.

        Raises:
            Problem: 404, there never was one, or it ended long ago.
        """
        instance = self._alive.get(instance_id)
        if instance is not None:
            self._end_if_late(instance)
            return instance
        if instance_id in self._gone:
            return self._gone[instance_id]
        raise not_found("Instance", instance_id)

    def beat(self, instance: Instance) -> None:
        """Note a heartbeat."""
        instance.heartbeat_at = self.clock()

    def sweep(self) -> None:
        """End every instance that is past a deadline."""
        for instance in list(self._alive.values()):
            self._end_if_late(instance)

    def __iter__(self) -> Iterator[Instance]:
        """Every instance that is known, the running ones first."""
        self.sweep()
        yield from list(self._alive.values())
        yield from list(self._gone.values())

    def __len__(self) -> int:
        """How many count against the limit."""
        self.sweep()
        return len(self._alive)

    def remember(self, request_id: str, body: str, instance: Instance) -> None:
        """Bind a request id to what it asked for and the instance it got."""
        self._requests[request_id] = (body, instance.id)
        _trim(self._requests)

    def duplicate(self, request_id: str, body: str) -> Problem | None:
        """Return the answer to a repeated request id; None when it is new."""
        known = self._requests.get(request_id)
        if known is None:
            return None
        if known[0] != body:
            return Problem(409, "X-Request-ID was used before with another body")
        message = f"this request made instance '{known[1]}' already"
        detail: dict[str, JsonValue] = {
            "error": "duplicate_request_id",
            "instance_id": known[1],
            "message": message,
        }
        return Problem(409, detail)

    def _end_if_late(self, instance: Instance) -> None:
        now, deadline = self.clock(), instance.deadline
        if now >= instance.expires_at:
            self.end(instance, "ttl_expired")
        elif deadline is not None and now > deadline:
            self.end(instance, "heartbeat_missed")


def _trim(table: OrderedDict[str, Kept]) -> None:
    while len(table) > KEPT_ENDED:
        table.popitem(last=False)
