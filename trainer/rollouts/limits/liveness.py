"""Telling a policy that is slow from an engine that hangs, or that died and is started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.environment.errors import EngineRestarted
from trainer.engines.base import Engine, HasCopies, Restartable
from trainer.errors import EngineError

PATIENCE_S = 30.0
"""How long an engine may take to score a few tokens, unless a turn has less time."""
LOOK_AGAIN_S = 1.0
"""How often it is asked for an engine that is away."""
_NUM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """Of whom a turn is asked, since when, and what that engine had drawn before (tokens)."""

    engine: Engine
    began: float
    num_drawn: int

    @classmethod
    def to(cls, engine: Engine, *, session: str, prefix_key: str) -> Request:
        """Return the request that a session makes now."""
        copy = _serving(engine, session, prefix_key)
        return cls(copy, time.monotonic(), copy.stats().num_sampled_tokens)

    @property
    def met_a_restart(self) -> bool:
        """True if the engine became ready only after the request began."""
        return isinstance(self.engine, Restartable) and self.engine.ready_since > self.began


async def refuse_dead_engine(request: Request, token_ids: Sequence[int], *, turn_s: float) -> None:
    """Return if the engine was there all the time and has drawn a token, or still answers.

    Raises:
        EngineRestarted: it died since the request began: it starts again, or has done so.
        EngineError: it has drawn nothing, and it does not answer.
    """
    await _refuse_restarted(request)
    if request.engine.stats().num_sampled_tokens > request.num_drawn:
        return
    patience_s = min(PATIENCE_S, turn_s)
    try:
        async with asyncio.timeout(patience_s):
            await request.engine.logprobs(token_ids[:_NUM_TOKENS])
    except TimeoutError:
        await _refuse_restarted(request)
        raise EngineError(
            f"the engine hangs: it drew no token for a whole turn, and did not score {_NUM_TOKENS}"
            f" tokens in {patience_s:g} s"
        ) from None
    await _refuse_restarted(request)


async def until_back(engine: Engine, *, session: str, prefix_key: str) -> None:
    """Return once what a session is asked of can draw; the step's deadline bounds the wait.

    Raises:
        EngineError: it died more often than it is started again.
    """
    copy = _serving(engine, session, prefix_key)
    while isinstance(copy, Restartable) and not await copy.health_check():  # noqa: ASYNC110 - a process
        await asyncio.sleep(LOOK_AGAIN_S)


async def _refuse_restarted(request: Request) -> None:
    if not isinstance(request.engine, Restartable):
        return
    if not await request.engine.health_check() or request.met_a_restart:
        raise EngineRestarted("the engine died during a turn, and is started again")


def _serving(engine: Engine, session: str, prefix_key: str) -> Engine:
    return engine.copy_for(session, prefix_key) if isinstance(engine, HasCopies) else engine
