"""Draws the faults of each request and injects them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydantic import JsonValue
from starlette.requests import Request

from hillclimb.minifleet.server.faults.plan import FaultRule, Operation, WireFaults
from hillclimb.minifleet.server.problems import FleetProblem, structured_problem


@dataclass(slots=True)
class FaultCounter:
    """Counts requests of an instance, so that its faults do not depend on other requests.

    Requests that name no instance share a counter.
    """

    name: str
    env_key: str | None = None
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """The faults drawn for one request; the default is none."""

    delay_s: float = 0.0
    late_s: float = 0.0
    error: FleetProblem | None = None
    hang_s: float | None = None
    lost: FleetProblem | None = None
    expires: bool = False
    empty_tools: bool = False
    crashes: bool = False
    judge_fails: bool = False
    has_no_result: bool = False

    async def before(self, request: Request) -> None:
        """Wait, hang or fail, as drawn, before the request is carried out.

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

    async def come_late(self) -> None:
        """Wait until a creation is carried out."""
        if self.late_s:
            await asyncio.sleep(self.late_s)

    async def wait(self) -> None:
        """Wait for the drawn latency."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)

    def after(self) -> None:
        """Drop the reply, if drawn, after the request was carried out.

        Raises:
            Problem: the response in place of the reply.
        """
        if self.lost is not None:
            raise self.lost


async def _hang(request: Request, seconds: float) -> None:
    """Send no response until the time is over or the client disconnects.

    Raises:
        FleetProblem: 504.
    """
    await request.body()  # the next message is the client's disconnect
    with suppress(TimeoutError):
        await asyncio.wait_for(request.receive(), seconds)
    raise structured_problem(504, "injected_fault", "no answer in time (injected)", retryable=True)


@dataclass(slots=True)
class RequestFaults:
    """The active fault rules; they can be replaced while the server runs.

    Args:
        clock: seconds; only differences count.
    """

    clock: Callable[[], float]
    seed: int = 0
    num_injected: Counter[str] = field(default_factory=Counter)
    """Injected faults by kind."""
    _rules: list[tuple[float, FaultRule]] = field(default_factory=list)

    def replace(self, faults: WireFaults) -> None:
        """Replace all rules; the time windows of the new ones begin now."""
        self.seed = faults.seed
        self._rules = [(self.clock(), rule) for rule in faults.rules]

    def add(self, rule: FaultRule) -> None:
        """Add a rule, whose time window begins now."""
        self._rules.append((self.clock(), rule))

    def current(self) -> WireFaults:
        """Return all rules, those with an expired time window included."""
        return WireFaults(seed=self.seed, rules=tuple(rule for _, rule in self._rules))

    def draw(self, operation: Operation, counter: FaultCounter) -> InjectedFault:
        """Draw the faults of the counter's next request of an operation."""
        number = counter.counts[operation]
        counter.counts[operation] += 1
        fault, now = InjectedFault(), self.clock()
        for index, (since, rule) in enumerate(self._rules):
            if rule.applies(operation, counter.env_key, now - since):
                rng = random.Random(f"{self.seed}/{index}/{operation}/{counter.name}/{number}")
                fault = _merge(fault, rule, rng, number)
        self._count(fault)
        return fault

    def _count(self, fault: InjectedFault) -> None:
        kinds = {
            "delay": bool(fault.delay_s),
            "late": bool(fault.late_s),
            "error": fault.error is not None,
            "hang": fault.hang_s is not None,
            "lost_reply": fault.lost is not None,
            "expire": fault.expires,
            "empty_tools": fault.empty_tools,
            "crash": fault.crashes,
            "judge_error": fault.judge_fails,
            "no_result": fault.has_no_result,
        }
        self.num_injected.update(kind for kind, happens in kinds.items() if happens)


def _merge(fault: InjectedFault, rule: FaultRule, rng: random.Random, number: int) -> InjectedFault:
    """Add one rule's draws; every rate is drawn, whatever the others return."""
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
        fault,
        delay_s=fault.delay_s + delay,
        late_s=fault.late_s + (rng.uniform(0.0, rule.late_s) if rule.late_s else 0.0),
        error=fault.error or (_failure(rule) if fails else None),
        lost=fault.lost or (_failure(rule) if loses else None),
        hang_s=rule.hang_s if hangs else fault.hang_s,
        expires=fault.expires or expires,
        empty_tools=fault.empty_tools or empties or number < rule.empty_tools_first,
        crashes=fault.crashes or crashes,
        judge_fails=fault.judge_fails or judge_fails,
        has_no_result=fault.has_no_result or is_void,
    )


def _failure(rule: FaultRule) -> FleetProblem:
    """Return the error of a rule; its text has "temporarily" for clients that retry by text."""
    more: dict[str, JsonValue] = {} if rule.retryable is None else {"retryable": rule.retryable}
    word = "refused" if rule.retryable is False else "temporarily unavailable"
    return structured_problem(rule.error_status, "injected_fault", f"{word} (injected)", **more)
