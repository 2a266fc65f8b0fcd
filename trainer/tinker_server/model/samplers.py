"""Who samples: an engine for each set of weights in use, a few at once."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer.engines.torch import TorchEngine, TorchEngineOptions
from trainer.tinker_server.base import BaseModel
from trainer.tinker_server.errors import Refused
from trainer.tinker_server.wire import AskSample, Sampling
from trainer.types import Sample, SamplingParams

MAX_ENGINES = 3
"""Engines that stay though nobody uses them; each has a copy of the model."""


@dataclass(slots=True)
class _Held:
    engine: TorchEngine
    num_users: int = 0


class Samplers:
    """Draws from the base model and from adapters."""

    def __init__(self, base: BaseModel, *, num_sessions: int, max_length: int) -> None:
        self._base = base
        self._options = TorchEngineOptions(num_sessions=num_sessions, max_length=max_length)
        self._held: dict[Path | None, _Held] = {}

    async def answer(
        self, request_id: str, asked: AskSample, adapter: Path | None
    ) -> dict[str, Any]:
        """Return the answer to a sample request, by the protocol's names.

        Raises:
            Refused: it asks for something that this server does not do, or too many tokens.
        """
        prompt = asked.prompt.tokens
        _check(asked)
        params = self._params(asked.sampling_params, len(prompt))
        async with self._engine(adapter) as engine:
            answer: dict[str, Any] = {"type": "sample"}
            if asked.prompt_logprobs:
                scores = (await engine.logprobs(prompt)).tolist() if len(prompt) > 1 else []
                answer["prompt_logprobs"] = [None, *scores]
            drawing = (
                self._draw(engine, f"{request_id}/{index}", prompt, _seeded(params, index))
                for index in range(asked.num_samples)
            )
            answer["sequences"] = [_sequence(each) for each in await asyncio.gather(*drawing)]
        return answer

    async def close(self) -> None:
        """End all engines."""
        for held in self._held.values():
            await held.engine.close()
        self._held.clear()

    async def _draw(
        self, engine: TorchEngine, session: str, prompt: tuple[int, ...], params: SamplingParams
    ) -> Sample:
        # Requests with the same prompt share its computation, whoever sent them.
        key = hashlib.sha256(repr(prompt).encode()).hexdigest()
        try:
            return await engine.sample(prompt, params, session=session, prefix_key=key)
        finally:
            engine.release(session)

    def _params(self, asked: Sampling, prompt_length: int) -> SamplingParams:
        room = self._options.max_length - prompt_length
        if asked.top_k > 0:
            raise Refused("this server draws from all tokens: leave top_k out")
        stop = asked.stop if isinstance(asked.stop, tuple) else (asked.stop,) if asked.stop else ()
        if not all(isinstance(each, int) for each in stop):
            raise Refused("this server stops at tokens, not at texts: give their ids in stop")
        if not prompt_length or room < 1:
            raise Refused(
                f"a prompt has 1 to {self._options.max_length - 1} tokens here, not {prompt_length}"
            )
        return SamplingParams(
            temperature=asked.temperature,
            max_new_tokens=min(asked.max_tokens or room, room),
            top_p=asked.top_p,
            stop_token_ids=tuple(int(each) for each in stop),
            seed=asked.seed if asked.seed is not None else secrets.randbits(62),
        )

    @asynccontextmanager
    async def _engine(self, adapter: Path | None) -> AsyncIterator[TorchEngine]:
        held = self._held.pop(adapter, None)
        if held is None:
            weights = self._base.weights(adapter)
            held = _Held(TorchEngine(self._base.config, weights, options=self._options))
        self._held[adapter] = held
        held.num_users += 1
        try:
            yield held.engine
        finally:
            held.num_users -= 1
            await self._end_idle()

    async def _end_idle(self) -> None:
        idle = [key for key, held in self._held.items() if not held.num_users]
        for key in idle[: max(0, len(self._held) - MAX_ENGINES)]:
            await self._held.pop(key).engine.close()


def _check(asked: AskSample) -> None:
    if asked.topk_prompt_logprobs:
        raise Refused(
            "this server scores the prompt's own tokens only: leave topk_prompt_logprobs out"
        )


def _seeded(params: SamplingParams, index: int) -> SamplingParams:
    """The seed of one of several samples of a request."""
    return replace(params, seed=params.seed + 0x9E3779B9 * index)


def _sequence(sample: Sample) -> dict[str, Any]:
    return {
        "tokens": list(sample.token_ids),
        "logprobs": list(sample.logprobs),
        "stop_reason": "stop" if sample.stopped else "length",
    }
