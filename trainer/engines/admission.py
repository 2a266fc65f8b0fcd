"""Admission of rollouts to an engine by the tokens of its KV cache.

An engine that has more rollouts in flight than its cache has room for evicts the tokens of some
between two of their turns, or preempts them within one, and computes them again. So a rollout
reserves what it has and what its next turn may add, keeps that until it ends, and waits for room
outside of any deadline. Prompts of a group are stored once and count once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol, runtime_checkable

from trainer.engines.base import EngineStats
from trainer.errors import EngineError

UNLIMITED = 2**62
"""Grant of an engine whose cache has room for every rollout at full length (tokens)."""
IDLE_S = 1.0
"""Time without a request after which the first in line is admitted even so (seconds): whoever
reserved the cache calls tools, or has died without a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheClaim:
    """Room that a rollout needs for its next turn."""

    session: str
    group: str = ""
    """Rollouts of one group share their prompt; empty for a rollout without siblings."""
    num_shared: int = 0
    """Tokens of the group's prompt (count)."""
    num_own: int
    """Tokens after it, those that the turn may draw included (count)."""
    is_evaluation: bool = False
    """Training waits for evaluations."""


@runtime_checkable
class AdmitsRollouts(Protocol):
    """An engine that bounds the rollouts in flight by its cache."""

    async def admit(self, claim: CacheClaim) -> int:
        """Return, once there is room, the own tokens that the session may have without a new claim.

        Repeating a claim changes nothing; `Engine.release` returns the room.

        Raises:
            EngineError: the session was released.
        """
        ...


@dataclass(slots=True, eq=False)
class _Group:
    number: int
    """By the arrival of its first claim."""
    num_shared: int
    members: set[str] = field(default_factory=set)
    """Sessions that hold room."""


@dataclass(slots=True, eq=False)
class _Waiter:
    claim: CacheClaim
    group: _Group
    arrival: int
    granted: asyncio.Future[None]
    has_begun: bool
    """It was admitted before, and asks for more room."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Begun rollouts first, evaluations next, and older groups before younger ones."""
        rank = 0 if self.has_begun else 1 if self.claim.is_evaluation else 2
        return rank, self.group.number, self.arrival


class CacheAdmission:
    """Reservations of one engine's cache, and the line of those who wait for room.

    Progress never depends on a release: the first in line is admitted where nothing is reserved,
    and after `IDLE_S` without a request. Room is taken back from rollouts that wait themselves,
    the youngest first, for an older one that has begun; they compute their tokens again.
    """

    def __init__(self, num_tokens: int, *, block: int = 1, most: int | None = None) -> None:
        """`num_tokens` is the cache's size, `block` the tokens that are allocated at once.

        `most` is what all rollouts of the run could need together; with room for that, each gets
        `UNLIMITED`. Counts of tokens.
        """
        self.num_tokens = num_tokens
        self._block = block
        self._is_roomy = most is not None and most <= num_tokens
        self._own: dict[str, int] = {}
        self._groups: dict[str, _Group] = {}
        self._begun: dict[str, _Group] = {}
        self._waiting: list[_Waiter] = []
        self._numbers, self._arrivals = count(), count()
        self._reserved = 0
        self._num_sampling = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._num_waits, self._waited_s = 0, 0.0
        self._token_s, self._since = 0.0, 0.0

    @property
    def num_reserved(self) -> int:
        """Reserved tokens (count)."""
        return self._reserved

    @property
    def num_waiting(self) -> int:
        """Rollouts in the line."""
        return len(self._waiting)

    def add_to(self, stats: EngineStats) -> EngineStats:
        """Return the engine's counters with those of its admission."""
        if self._is_roomy:
            return stats
        self._integrate()
        return replace(
            stats,
            num_cache_tokens=self.num_tokens,
            reserved_token_s=self._token_s,
            num_cache_waits=self._num_waits,
            cache_wait_s=self._waited_s,
        )

    async def admit(self, claim: CacheClaim) -> int:
        """See `AdmitsRollouts.admit`.

        Raises:
            EngineError: the session was released while it waited.
        """
        if self._is_roomy:
            return UNLIMITED
        group = self._begun.get(claim.session) or self._group_of(claim)
        waiter = _Waiter(
            claim=claim,
            group=group,
            arrival=next(self._arrivals),
            granted=asyncio.get_running_loop().create_future(),
            has_begun=claim.session in self._begun,
        )
        if waiter.has_begun and not self._missing(waiter):
            return claim.num_own
        self._waiting.append(waiter)
        self._serve()
        if not waiter.granted.done():
            self._num_waits += 1
            began = time.monotonic()
            try:
                await waiter.granted
            finally:
                self._waited_s += time.monotonic() - began
                self._leave(waiter)
        waiter.granted.result()
        return claim.num_own

    def release(self, session: str) -> None:
        """Return the session's room; unknown names are ignored."""
        groups: set[_Group] = set()
        for waiter in [each for each in self._waiting if each.claim.session == session]:
            if not waiter.granted.done():
                waiter.granted.set_exception(EngineError(f"session {session} was released"))
            self._waiting.remove(waiter)
            groups.add(waiter.group)
        begun = self._begun.pop(session, None)
        if begun is not None:
            self._evict(session, begun)
            groups.add(begun)
        for group in groups:
            self._forget_if_unused(group)
        self._serve()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Count the block as a request in flight."""
        self._integrate()
        self._num_sampling += 1
        try:
            yield
        finally:
            self._integrate()
            self._num_sampling -= 1
            self._watch_idleness()

    def _group_of(self, claim: CacheClaim) -> _Group:
        name = claim.group or claim.session
        group = self._groups.get(name)
        if group is None:
            group = _Group(next(self._numbers), self._whole(claim.num_shared))
            self._groups[name] = group
        return group

    def _whole(self, num_tokens: int) -> int:
        return math.ceil(num_tokens / self._block) * self._block

    def _missing(self, waiter: _Waiter) -> int:
        own = self._whole(waiter.claim.num_own) - self._own.get(waiter.claim.session, 0)
        return max(0, own) + (0 if waiter.group.members else waiter.group.num_shared)

    def _serve(self) -> None:
        """Admit from the head of the line; whoever is behind it never overtakes."""
        while self._waiting:
            head = min(self._waiting, key=lambda waiter: waiter.order)
            if not self._make_room(head):
                break
            self._grant(head)
        self._watch_idleness()

    def _make_room(self, head: _Waiter) -> bool:
        if not self._reserved:
            return True
        missing = self._reserved + self._missing(head) - self.num_tokens
        victims: list[_Waiter] = []
        for waiter in self._younger_holders(head):
            if missing <= 0:
                break
            victims.append(waiter)
            missing -= self._own[waiter.claim.session]
        if missing > 0:
            return False
        for waiter in victims:
            self._evict(waiter.claim.session, waiter.group)
        return True

    def _younger_holders(self, head: _Waiter) -> list[_Waiter]:
        """Return those behind the head that have room, the youngest first."""
        behind = sorted(self._waiting, key=lambda waiter: waiter.order, reverse=True)
        return [
            waiter
            for waiter in behind
            if waiter is not head
            and waiter.claim.session in self._own
            # Otherwise the head might have to store the prompt that both share.
            and (waiter.group is not head.group or head.claim.session in self._own)
        ]

    def _grant(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        if waiter.granted.done():
            return
        session = waiter.claim.session
        self._integrate()
        self._reserved += self._missing(waiter)
        self._own[session] = max(self._whole(waiter.claim.num_own), self._own.get(session, 0))
        waiter.group.members.add(session)
        self._begun[session] = waiter.group
        waiter.granted.set_result(None)

    def _evict(self, session: str, group: _Group) -> None:
        if session not in group.members:
            return
        self._integrate()
        group.members.discard(session)
        self._reserved -= self._own.pop(session) + (0 if group.members else group.num_shared)

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that was cancelled; of one that was admitted nothing is left to do."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._forget_if_unused(waiter.group)
            self._serve()

    def _forget_if_unused(self, group: _Group) -> None:
        waits = any(waiter.group is group for waiter in self._waiting)
        if not waits and group not in self._begun.values():
            self._groups = {name: each for name, each in self._groups.items() if each is not group}

    def _watch_idleness(self) -> None:
        if self._num_sampling or not self._waiting:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
        elif self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(IDLE_S, self._admit_when_idle)

    def _admit_when_idle(self) -> None:
        self._idle_timer = None
        if self._waiting and not self._num_sampling:
            self._grant(min(self._waiting, key=lambda waiter: waiter.order))
        self._watch_idleness()

    def _integrate(self) -> None:
        now = time.monotonic()
        if self._num_sampling:
            self._token_s += self._reserved * (now - self._since)
        self._since = now
