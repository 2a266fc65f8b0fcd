"""Telling a policy that is slow from an engine that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trainer.engines.base import Engine
from trainer.errors import EngineError

PATIENCE_S = 30.0
"""How long an engine may take to score a few tokens, unless a turn has less time."""
_NUM_TOKENS = 8


async def refuse_dead_engine(
    engine: Engine, token_ids: Sequence[int], num_drawn: int, *, turn_s: float
) -> None:
    """Return if the engine has drawn a token since it had drawn `num_drawn`, or still answers.

    Raises:
        EngineError: it has not, and it does not.
    """
    if engine.stats().num_sampled_tokens > num_drawn:
        return
    patience_s = min(PATIENCE_S, turn_s)
    try:
        async with asyncio.timeout(patience_s):
            await engine.logprobs(token_ids[:_NUM_TOKENS])
    except TimeoutError:
        raise EngineError(
            f"the engine hangs: it drew no token for a whole turn, and did not score {_NUM_TOKENS}"
            f" tokens in {patience_s:g} s"
        ) from None
