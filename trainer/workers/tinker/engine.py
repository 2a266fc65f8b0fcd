"""The engine on a Tinker server: every weight sync gives it a new sampling client."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import tinker
import torch
from tinker import types

from hillclimb.environment.errors import SampleUnusable
from trainer.engines.base import EngineStats, attended_pairs
from trainer.errors import EngineError
from trainer.types import Sample, SamplingParams
from trainer.workers.tinker.calls import awaited

_SEEDS = 2**31
"""Seeds of the protocol are numbers below; ours have 64 bits."""


class TinkerEngine:
    """An `Engine` whose requests go to a server, which batches them and keeps its own caches."""

    def __init__(
        self, *, timeout_s: float, max_length: int, check: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for weights (`take`); a prompt with its answer has at most `max_length` tokens.

        `check` raises before each sample once the model in training is lost: samples could go on,
        and nothing would learn from them.
        """
        self._check = check
        self._timeout_s = timeout_s
        self._max_length = max_length
        self._client: tinker.SamplingClient | None = None
        self._version = 0
        self._num_sampled = self._num_prompt = self._num_cached = self._num_pairs = 0
        self._num_in_flight, self._since, self._busy_s = 0, 0.0, 0.0

    @property
    def weight_version(self) -> int:
        """Version passed to the last `take`."""
        return self._version

    def take(self, client: tinker.SamplingClient, version: int) -> None:
        """Sample by `client` from now on; requests in flight finish with their old weights."""
        self._client, self._version = client, version

    def stats(self) -> EngineStats:
        """Return the counters since start; `busy_s` are seconds with any request in flight."""
        running_s = time.perf_counter() - self._since if self._num_in_flight else 0.0
        return EngineStats(
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_prompt - self._num_cached,
            num_cached_tokens=self._num_cached,
            busy_s=self._busy_s + running_s,
            num_attended_pairs=self._num_pairs,
        )

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; see `Engine.sample`. The server finds common prompts by itself.

        Raises:
            SpecError: the server refuses such a request for good.
            LearnerError: the model in training is lost.
            EngineError: the prompt does not fit the context, or the server did not answer.
            SampleUnusable: it answered without what training needs.
        """
        del session, prefix_key
        if not prompt_ids or len(prompt_ids) + params.max_new_tokens > self._max_length:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens and {params.max_new_tokens} new ones do not"
                f" fit the context of {self._max_length}"
            )
        self._check()
        client, version = self._ready(), self._version
        with self._in_flight():
            response = await awaited(
                "a sample",
                EngineError,
                self._timeout_s,
                client.sample_async(
                    types.ModelInput.from_ints(list(prompt_ids)),
                    num_samples=1,
                    sampling_params=types.SamplingParams(
                        max_tokens=params.max_new_tokens,
                        seed=params.seed % _SEEDS,
                        stop=list(params.stop_token_ids),
                        temperature=params.temperature,
                        top_p=params.top_p,
                    ),
                ),
            )
        sample = _usable(response, params, version)
        self._num_sampled += len(sample.token_ids)
        self._num_prompt += len(prompt_ids)
        cached = min(response.prompt_cache_hit_tokens, len(prompt_ids))
        self._num_cached += cached
        self._num_pairs += attended_pairs(cached, len(prompt_ids) + len(sample.token_ids))
        return sample

    def release(self, session: str) -> None:
        """Do nothing: no state is kept per session."""

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1.

        Raises:
            EngineError: the server did not answer, or left a token out.
        """
        with self._in_flight():
            scores = await awaited(
                "log-probs of a sequence",
                EngineError,
                self._timeout_s,
                self._ready().compute_logprobs_async(types.ModelInput.from_ints(list(token_ids))),
            )
        # Servers return T scores, the first one None, or T - 1; some return none at all.
        scores = scores or []
        logprobs = [score for score in scores[-(len(token_ids) - 1) :] if score is not None]
        if len(scores) not in (len(token_ids), len(token_ids) - 1) or len(logprobs) + 1 != len(
            token_ids
        ):
            raise EngineError(f"the Tinker server did not score all of {len(token_ids)} tokens")
        return torch.tensor(logprobs)

    async def close(self) -> None:
        """Drop the client; the session belongs to the service."""
        self._client = None

    def _ready(self) -> tinker.SamplingClient:
        if self._client is None:
            raise EngineError("the Tinker engine has no weights: none were synced, or it is closed")
        return self._client

    @contextmanager
    def _in_flight(self) -> Iterator[None]:
        if not self._num_in_flight:
            self._since = time.perf_counter()
        self._num_in_flight += 1
        try:
            yield
        finally:
            self._num_in_flight -= 1
            if not self._num_in_flight:
                self._busy_s += time.perf_counter() - self._since


def _usable(response: types.SampleResponse, params: SamplingParams, version: int) -> Sample:
    """Return the sample, if it can be trained on.

    A missing log-prob must not become 0, which would mean that the token was certain.
    """
    sequence = response.sequences[0] if response.sequences else None
    tokens = tuple(sequence.tokens) if sequence else ()
    logprobs = tuple(sequence.logprobs or ()) if sequence else ()
    if sequence is None or not tokens or len(logprobs) != len(tokens):
        raise SampleUnusable(f"{len(tokens)} tokens came with {len(logprobs)} log-probs")
    if not all(math.isfinite(each) for each in logprobs):
        raise SampleUnusable("a log-prob of a drawn token is NaN or infinite")
    stopped = sequence.stop_reason == "stop"
    if stopped and tokens[-1] not in params.stop_token_ids:
        raise SampleUnusable(
            "the token that ended the turn was left out: it could not be trained on"
        )
    return Sample(
        token_ids=tokens,
        logprobs=logprobs,
        stopped=stopped,
        weight_versions=(version,) * len(tokens),
    )
