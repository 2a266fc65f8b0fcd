"""Pool of sampling engines: one for each set of weights in use, a few at once."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.tinker_server.errors import RequestRefused
from trainer.tinker_server.model.base import BaseModel
from trainer.tinker_server.wire import AskSample, SampleRequest
from trainer.types import Sample, SamplingParams

MAX_ENGINES = 3
"""Most engines of the pool when idle; each has a copy of the model."""


_NOTHING = Sample(token_ids=(), logprobs=(), stopped=False, weight_versions=())
"""The sample of a request for no tokens."""


@dataclass(slots=True)
class _PooledEngine:
    engine: TorchEngine
    num_users: int = 0


class SamplerPool:
    """Draws from the base model and from adapters."""

    def __init__(self, base: BaseModel, *, num_sessions: int, max_length: int) -> None:
        self._base = base
        self._options = TorchEngineOptions(num_sessions=num_sessions, max_length=max_length)
        self._engines: dict[Path | None, _PooledEngine] = {}

    async def answer(
        self, request_id: str, request: AskSample, adapter: Path | None
    ) -> dict[str, Any]:
        """Return the answer to a sample request, in the protocol's format.

        Raises:
            RequestRefused: it needs a feature that this server lacks, too many tokens, or tokens
                that the model does not have.
            EngineError: the engine stopped meanwhile.
        """
        prompt = request.prompt.tokens
        self._check(request)
        params = self._params(request.sampling_params, len(prompt))
        async with self._engine(adapter) as engine:
            answer: dict[str, Any] = {"type": "sample"}
            if request.prompt_logprobs:
                scores = (await engine.logprobs(prompt)).tolist() if len(prompt) > 1 else []
                answer["prompt_logprobs"] = [None, *scores]
            if params.max_new_tokens:
                drawing = (
                    self._draw(engine, f"{request_id}/{index}", prompt, _seeded(params, index))
                    for index in range(request.num_samples)
                )
                samples = await asyncio.gather(*drawing)
            else:
                samples = [_NOTHING] * request.num_samples
            answer["sequences"] = [_sequence(each) for each in samples]
        return answer

    async def close(self) -> None:
        """End all engines."""
        for pooled in self._engines.values():
            await pooled.engine.close()
        self._engines.clear()

    async def _draw(
        self, engine: TorchEngine, session: str, prompt: tuple[int, ...], params: SamplingParams
    ) -> Sample:
        # Requests with the same prompt share its computation, whoever sent them.
        key = hashlib.sha256(repr(prompt).encode()).hexdigest()
        try:
            return await engine.sample(prompt, params, session=session, prefix_key=key)
        finally:
            engine.release(session)

    def _check(self, request: AskSample) -> None:
        """Refuse what no engine may get: one that stops fails the samples of all its clients."""
        if request.topk_prompt_logprobs:
            raise RequestRefused(
                "this server scores the prompt's own tokens only: leave topk_prompt_logprobs out"
            )
        vocab_size = self._base.config.vocab_size
        if not all(0 <= token < vocab_size for token in request.prompt.tokens):
            raise RequestRefused(
                f"a token of the prompt is none of the {vocab_size} of {self._base.name}"
            )

    def _params(self, request: SampleRequest, prompt_length: int) -> SamplingParams:
        room = self._options.max_length - prompt_length
        if request.top_k > 0:
            raise RequestRefused("this server draws from all tokens: leave top_k out")
        stop = request.stop or ()
        stop = stop if isinstance(stop, tuple) else (stop,)
        if not all(isinstance(each, int) for each in stop):
            raise RequestRefused(
                "this server stops at tokens, not at texts: give their ids in stop"
            )
        if not prompt_length or room < 1:
            raise RequestRefused(
                f"a prompt may have 1 to {self._options.max_length - 1} tokens, not {prompt_length}"
            )
        return SamplingParams(
            temperature=request.temperature,
            max_new_tokens=room if request.max_tokens is None else min(request.max_tokens, room),
            top_p=request.top_p,
            stop_token_ids=tuple(int(each) for each in stop),
            seed=request.seed if request.seed is not None else secrets.randbits(62),
        )

    @asynccontextmanager
    async def _engine(self, adapter: Path | None) -> AsyncIterator[TorchEngine]:
        pooled = self._engines.pop(adapter, None)
        if pooled is None:
            weights = self._base.weights(adapter)
            pooled = _PooledEngine(TorchEngine(self._base.config, weights, options=self._options))
        self._engines[adapter] = pooled
        pooled.num_users += 1
        try:
            yield pooled.engine
        finally:
            pooled.num_users -= 1
            await self._end_idle()

    async def _end_idle(self) -> None:
        idle = [key for key, pooled in self._engines.items() if not pooled.num_users]
        excess = idle[: max(0, len(self._engines) - MAX_ENGINES)]
        # All leave the pool before the first is awaited: meanwhile other requests end engines too,
        # and none may take up one that is about to be closed.
        for pooled in [self._engines.pop(key) for key in excess]:
            await pooled.engine.close()


def _seeded(params: SamplingParams, index: int) -> SamplingParams:
    """Return the parameters of one of several samples, with its own seed."""
    return replace(params, seed=params.seed + 0x9E3779B9 * index)


def _sequence(sample: Sample) -> dict[str, Any]:
    return {
        "tokens": list(sample.token_ids),
        "logprobs": list(sample.logprobs),
        "stop_reason": "stop" if sample.stopped else "length",
    }
