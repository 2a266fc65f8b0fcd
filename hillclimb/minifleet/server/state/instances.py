"""Table of instances: their state, deadlines and limit."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.server.faults.injection import FaultCounter
from hillclimb.minifleet.server.problems import FleetProblem, not_found, structured_problem

Status = Literal["pending", "running", "stopped"]
EndReason = Literal["deleted", "ttl_expired", "heartbeat_missed", "start_failed"]

T = TypeVar("T")
MAX_ENDED = 10_000
"""Most ended instances, and most request ids, that are remembered."""


class CreateRequest(BaseModel):
    """Body of `POST /v1/env/instances`; unknown fields are ignored."""

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
    """One environment instance of a client. Times are seconds since the epoch."""

    id: str
    version: str
    region: str
    request: CreateRequest
    counter: FaultCounter
    created_at: float
    expires_at: float
    heartbeat_at: float
    status: Status = "pending"
    end_reason: EndReason | None = None
    ended_at: float | None = None
    updated_at: float = 0.0
    env: MinifleetEnv | None = None
    mcp_sessions: set[str] = field(default_factory=set)

    @property
    def deadline(self) -> float | None:
        """Time of the next heartbeat; None for an instance without heartbeats."""
        interval = self.request.heartbeat_interval
        return None if interval is None else self.heartbeat_at + interval

    @property
    def is_alive(self) -> bool:
        """True for a pending or running instance, which counts against the limit."""
        return self.status != "stopped"

    def running_env(self) -> MinifleetEnv:
        """Return the environment.

        Raises:
            Problem: 404, the instance has ended; 503, it is still pending.
        """
        if self.env is None or self.status != "running":
            if self.status == "pending":
                raise structured_problem(
                    503, "not_ready", f"instance '{self.id}' starts", retryable=True
                )
            raise FleetProblem(404, f"instance '{self.id}' is stopped ({self.end_reason})")
        return self.env


def iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@dataclass(slots=True, kw_only=True)
class InstanceTable:
    """All instances of the account. One past a deadline ends at the next access.

    Args:
        clock: seconds since the epoch.
        limit: instances that may run at once.
        default_ttl_s: lifetime of an instance whose request names none.
    """

    clock: Callable[[], float]
    limit: int
    default_ttl_s: int
    num_ended: Counter[str] = field(default_factory=Counter)
    """Ended instances by reason."""
    num_created: int = 0
    _alive: dict[str, Instance] = field(default_factory=dict)
    _ended: OrderedDict[str, Instance] = field(default_factory=OrderedDict)
    _requests: OrderedDict[str, tuple[str, str]] = field(default_factory=OrderedDict)
    _num_by_data: Counter[str] = field(default_factory=Counter)

    def reserve(self, request: CreateRequest, region: str, version: str) -> Instance:
        """Add a pending instance.

        Raises:
            Problem: 403, the account is at its limit of instances.
        """
        self.sweep()
        running = len(self._alive)
        if running >= self.limit:
            raise structured_problem(
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
            counter=FaultCounter(f"{data}/{self._num_by_data[data]}", request.env_key),
            created_at=now,
            updated_at=now,
            heartbeat_at=now,
            expires_at=now + (request.ttl_seconds or self.default_ttl_s),
        )
        self._num_by_data[data] += 1
        self._alive[instance.id] = instance
        self.num_created += 1
        return instance

    def start(self, instance: Instance, env: MinifleetEnv) -> None:
        """Mark a pending instance as running, unless it has ended meanwhile."""
        if instance.status == "pending":
            instance.env, instance.status = env, "running"
            instance.updated_at = instance.heartbeat_at = self.clock()

    def end(self, instance: Instance, reason: EndReason) -> None:
        """End an instance and free its state; a second call does nothing."""
        if self._alive.pop(instance.id, None) is None:
            return
        instance.status, instance.end_reason, instance.env = "stopped", reason, None
        instance.ended_at = instance.updated_at = self.clock()
        instance.mcp_sessions.clear()
        self.num_ended[reason] += 1
        self._ended[instance.id] = instance
        _trim(self._ended)

    def find(self, instance_id: str) -> Instance:
        """Return an instance, running or ended.

        Raises:
            Problem: 404, it never existed or ended long ago.
        """
        instance = self._alive.get(instance_id)
        if instance is not None:
            self._end_if_late(instance)
            return instance
        if instance_id in self._ended:
            return self._ended[instance_id]
        raise not_found("Instance", instance_id)

    def heartbeat(self, instance: Instance) -> None:
        """Record a heartbeat."""
        instance.heartbeat_at = self.clock()

    def sweep(self) -> None:
        """End every instance that is past a deadline."""
        for instance in list(self._alive.values()):
            self._end_if_late(instance)

    def __iter__(self) -> Iterator[Instance]:
        """Iterate over all remembered instances, the running ones first."""
        self.sweep()
        yield from list(self._alive.values())
        yield from list(self._ended.values())

    def __len__(self) -> int:
        """Return the number of instances that count against the limit."""
        self.sweep()
        return len(self._alive)

    def remember(self, request_id: str, body: str, instance: Instance) -> None:
        """Record the body of a request id and the instance it created."""
        self._requests[request_id] = (body, instance.id)
        _trim(self._requests)

    def duplicate(self, request_id: str, body: str) -> FleetProblem | None:
        """Return the answer to a repeated request id; None when it is new."""
        earlier = self._requests.get(request_id)
        if earlier is None:
            return None
        if earlier[0] != body:
            return FleetProblem(409, "X-Request-ID was used before with another body")
        message = f"this request made instance '{earlier[1]}' already"
        detail: dict[str, JsonValue] = {
            "error": "duplicate_request_id",
            "instance_id": earlier[1],
            "message": message,
        }
        return FleetProblem(409, detail)

    def _end_if_late(self, instance: Instance) -> None:
        now, deadline = self.clock(), instance.deadline
        if now >= instance.expires_at:
            self.end(instance, "ttl_expired")
        elif deadline is not None and now > deadline:
            self.end(instance, "heartbeat_missed")


def _trim(table: OrderedDict[str, T]) -> None:
    while len(table) > MAX_ENDED:
        table.popitem(last=False)
