"""Liveness of the engine: tells a slow policy from an engine that hangs or restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.environment.errors import EngineRestarted
from trainer.engines.base import Engine, Restartable
from trainer.errors import EngineError

PATIENCE_S = 30.0
"""Time in which a live engine scores a few tokens, unless a turn has less (seconds)."""
HEALTH_CHECK_PAUSE_S = 1.0
"""Pause between health checks of an engine that restarts (seconds)."""
_NUM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A turn's request: its engine, start, and the tokens that the engine had drawn before."""

    engine: Engine
    began: float
    num_drawn: int

    @classmethod
    def to(cls, engine: Engine) -> Request:
        """Return the request that is sent now."""
        return cls(engine, time.monotonic(), engine.stats().num_sampled_tokens)

    @property
    def was_restarted(self) -> bool:
        """True if the engine became ready only after the request began."""
        return isinstance(self.engine, Restartable) and self.engine.ready_since > self.began


async def refuse_dead_engine(request: Request, token_ids: Sequence[int], *, turn_s: float) -> None:
    """Refuse an engine that restarted or hangs; one that drew a token or still scores passes.

    Raises:
        EngineRestarted: the engine died after the request began.
        EngineError: the engine has drawn nothing and does not respond.
    """
    await _refuse_restarted(request)
    if request.engine.stats().num_sampled_tokens > request.num_drawn:
        return
    patience_s = min(PATIENCE_S, turn_s)
    try:
        async with asyncio.timeout(patience_s):
            await _score(request.engine, token_ids[:_NUM_TOKENS])
    except TimeoutError:
        await _refuse_restarted(request)
        raise EngineError(
            f"the engine hangs: it drew no token for a whole turn, and did not score {_NUM_TOKENS}"
            f" tokens in {patience_s:g} s"
        ) from None
    await _refuse_restarted(request)


async def wait_until_ready(engine: Engine) -> None:
    """Wait until the engine can sample; only the step's deadline bounds it.

    Raises:
        EngineError: it died more often than it is restarted.
    """
    while isinstance(engine, Restartable) and not await engine.health_check():  # noqa: ASYNC110 - a process
        await asyncio.sleep(HEALTH_CHECK_PAUSE_S)


async def _score(engine: Engine, token_ids: Sequence[int]) -> None:
    if isinstance(engine, Restartable):
        await engine.score(token_ids)
    else:
        await engine.logprobs(token_ids)


async def _refuse_restarted(request: Request) -> None:
    if not isinstance(request.engine, Restartable):
        return
    if not await request.engine.health_check() or request.was_restarted:
        raise EngineRestarted("the engine died during a turn and restarts")
