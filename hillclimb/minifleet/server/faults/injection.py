"""Draws the faults of each request and carries them out."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydantic import JsonValue
from starlette.requests import Request

from trainer.envs.minifleet.server.problems import Problem, refused
from trainer.envs.minifleet.server.wirefaults import FaultRule, Operation, WireFaults


@dataclass(slots=True)
class Lane:
    """Requests that are counted together, so that their faults do not depend on other requests.

    An instance's requests are one lane; those that name no instance share one.
    """

    name: str
    env_key: str | None = None
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """The faults of one request; the default is none."""

    delay_s: float = 0.0
    error: Problem | None = None
    hang_s: float | None = None
    lost: Problem | None = None
    expires: bool = False
    empty_tools: bool = False
    crashes: bool = False
    judge_fails: bool = False
    has_no_result: bool = False

    async def before(self, request: Request) -> None:
        """Wait, hang or fail, as drawn, before anything is done.

        Raises:
            Problem: the injected failure.
        """
        await self.refuse(request)
        await self.wait()

    async def refuse(self, request: Request) -> None:
        """Hang or fail, as drawn.

        Raises:
            Problem: the injected failure.
        """
        if self.hang_s is not None:
            await _hang(request, self.hang_s)
        if self.error is not None:
            await self.wait()
            raise self.error

    async def wait(self) -> None:
        """Take the drawn time."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)

    def after(self) -> None:
        """Lose the reply, if drawn, when everything is done.

        Raises:
            Problem: what the client sees instead of the reply.
        """
        if self.lost is not None:
            raise self.lost


async def _hang(request: Request, seconds: float) -> None:
    """Give no answer until the time is over or the client has gone.

    Raises:
        Problem: 504.
    """
    await request.body()  # what is received afterwards says that the client has gone
    with suppress(TimeoutError):
        await asyncio.wait_for(request.receive(), seconds)
    raise refused(504, "injected_fault", "no answer in time (injected)", retryable=True)


@dataclass(slots=True)
class Striker:
    """The faults in force; they can be replaced while the server runs.

    Args:
        clock: seconds; only differences count.
    """

    clock: Callable[[], float]
    seed: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault was injected."""
    _rules: list[tuple[float, FaultRule]] = field(default_factory=list)

    def replace(self, faults: WireFaults) -> None:
        """Put these faults in the place of all others; their time begins now."""
        self.seed = faults.seed
        self._rules = [(self.clock(), rule) for rule in faults.rules]

    def add(self, rule: FaultRule) -> None:
        """Add a rule whose time begins now."""
        self._rules.append((self.clock(), rule))

    def current(self) -> WireFaults:
        """Return the faults in force, windows that are over included."""
        return WireFaults(seed=self.seed, rules=tuple(rule for _, rule in self._rules))

    def draw(self, operation: Operation, lane: Lane) -> Strike:
        """Return the faults of the lane's next request of this kind."""
        number = lane.counts[operation]
        lane.counts[operation] += 1
        strike, now = Strike(), self.clock()
        for index, (since, rule) in enumerate(self._rules):
            if rule.holds(operation, lane.env_key, now - since):
                rng = random.Random(f"{self.seed}/{index}/{operation}/{lane.name}/{number}")
                strike = _merge(strike, rule, rng, number)
        self._count(strike)
        return strike

    def _count(self, strike: Strike) -> None:
        kinds = {
            "delay": bool(strike.delay_s),
            "error": strike.error is not None,
            "hang": strike.hang_s is not None,
            "lost_reply": strike.lost is not None,
            "expire": strike.expires,
            "empty_tools": strike.empty_tools,
            "crash": strike.crashes,
            "judge_error": strike.judge_fails,
            "no_result": strike.has_no_result,
        }
        self.struck.update(kind for kind, happens in kinds.items() if happens)


def _merge(strike: Strike, rule: FaultRule, rng: random.Random, number: int) -> Strike:
    """Add one rule's draws; each is made whatever the others give."""
    delay = rule.delays().draw_latency(rng) if rule.latency_s else 0.0
    fails, loses, hangs, expires, empties, crashes, judge_fails, is_void = (
        rng.random() < rate
        for rate in (
            rule.error_rate,
            rule.lost_reply_rate,
            rule.hang_rate,
            rule.expire_rate,
            rule.empty_tools_rate,
            rule.crash_rate,
            rule.judge_error_rate,
            rule.no_result_rate,
        )
    )
    return replace(
        strike,
        delay_s=strike.delay_s + delay,
        error=strike.error or (_failure(rule) if fails else None),
        lost=strike.lost or (_failure(rule) if loses else None),
        hang_s=rule.hang_s if hangs else strike.hang_s,
        expires=strike.expires or expires,
        empty_tools=strike.empty_tools or empties or number < rule.empty_tools_first,
        crashes=strike.crashes or crashes,
        judge_fails=strike.judge_fails or judge_fails,
        has_no_result=strike.has_no_result or is_void,
    )


def _failure(rule: FaultRule) -> Problem:
    """The error a rule injects; its text says "temporarily", as retry rules by text look for."""
    more: dict[str, JsonValue] = {} if rule.retryable is None else {"retryable": rule.retryable}
    word = "refused" if rule.retryable is False else "temporarily unavailable"
    return refused(rule.error_status, "injected_fault", f"{word} (injected)", **more)
