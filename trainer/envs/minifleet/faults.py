"""Faults on purpose: how a user tries what a run does when environments fail."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from trainer.errors import EnvUnavailable, RolloutError, ToolTransport, VerifierUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Rates in [0, 1] at which each operation fails, and seconds that each one takes longer.

    Raises:
        ValueError: a rate lies outside [0, 1], or the latency below 0.
    """

    reset_error_rate: float = 0.0
    call_error_rate: float = 0.0
    verifier_error_rate: float = 0.0
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        rates = (self.reset_error_rate, self.call_error_rate, self.verifier_error_rate)
        if not all(0.0 <= rate <= 1.0 for rate in rates):
            raise ValueError("fault rates lie in [0, 1]")
        if self.latency_s < 0.0:
            raise ValueError("latency_s is negative")


class FaultInjector:
    """Draws the faults of one episode; equal seeds give equal faults."""

    def __init__(self, faults: Faults, seed: str) -> None:
        self._faults = faults
        self._random = random.Random(seed)

    async def before_reset(self) -> None:
        """Wait, then raise `EnvUnavailable` at the configured rate."""
        await self._strike(self._faults.reset_error_rate, EnvUnavailable("injected reset fault"))

    async def before_call(self) -> None:
        """Wait, then raise `ToolTransport` at the configured rate."""
        await self._strike(self._faults.call_error_rate, ToolTransport("injected call fault"))

    async def before_score(self) -> None:
        """Wait, then raise `VerifierUnavailable` at the configured rate."""
        fault = VerifierUnavailable("injected verifier fault")
        await self._strike(self._faults.verifier_error_rate, fault)

    async def _strike(self, rate: float, error: RolloutError) -> None:
        if self._faults.latency_s:
            await asyncio.sleep(self._faults.latency_s)
        if self._random.random() < rate:
            raise error
