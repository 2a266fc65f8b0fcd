"""Injected faults of the in-process environments: rates of failure and latency."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass

from hillclimb.environment.errors import (
    EnvUnavailable,
    RolloutError,
    ToolTransport,
    VerifierUnavailable,
)

_Z_99 = 2.3263478740408408
"""99th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Rates in [0, 1] at which each operation fails, and added latency (seconds).

    Raises:
        ValueError: a rate lies outside [0, 1], or the latency below 0.
    """

    reset_error_rate: float = 0.0
    call_error_rate: float = 0.0
    verifier_error_rate: float = 0.0
    latency_s: float = 0.0
    latency_p99_s: float | None = None
    """None: `latency_s` is constant. Else that is the median of a lognormal
    distribution with this 99th percentile."""

    def __post_init__(self) -> None:
        rates = (self.reset_error_rate, self.call_error_rate, self.verifier_error_rate)
        if not all(0.0 <= rate <= 1.0 for rate in rates):
            raise ValueError("fault rates lie in [0, 1]")
        if self.latency_s < 0.0:
            raise ValueError("latency_s is negative")
        if self.latency_p99_s is not None and not 0.0 < self.latency_s <= self.latency_p99_s:
            raise ValueError("latency_p99_s needs a latency_s above 0 and no larger than itself")

    def draw_latency(self, rng: random.Random) -> float:
        """Return the added latency of one operation (seconds)."""
        if self.latency_p99_s is None:
            return self.latency_s
        sigma = math.log(self.latency_p99_s / self.latency_s) / _Z_99
        return rng.lognormvariate(math.log(self.latency_s), sigma)


class FaultInjector:
    """Draws the faults of one episode; equal seeds give equal faults."""

    def __init__(self, faults: Faults, seed: str) -> None:
        self._faults = faults
        self._random = random.Random(seed)
        self._latencies = random.Random(f"{seed}/latency")

    async def before_reset(self) -> None:
        """Wait, then raise `EnvUnavailable` at the configured rate."""
        await self._inject(self._faults.reset_error_rate, EnvUnavailable("injected reset fault"))

    async def before_call(self) -> None:
        """Wait, then raise `ToolTransport` at the configured rate."""
        await self._inject(self._faults.call_error_rate, ToolTransport("injected call fault"))

    async def before_score(self) -> None:
        """Wait, then raise `VerifierUnavailable` at the configured rate."""
        fault = VerifierUnavailable("injected verifier fault")
        await self._inject(self._faults.verifier_error_rate, fault)

    async def _inject(self, rate: float, error: RolloutError) -> None:
        if self._faults.latency_s:
            await asyncio.sleep(self._faults.draw_latency(self._latencies))
        if self._random.random() < rate:
            raise error
