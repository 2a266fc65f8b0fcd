"""The engine port: sampling. Token ids in, token ids and log-probs out; no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from trainer.types import Sample, SamplingParams

if TYPE_CHECKING:
    # A rollout worker samples without it (`hillclimb.process.lazy_imports`).
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since start; the loop reports their differences per step."""

    num_sampled_tokens: int
    num_prefill_tokens: int
    num_cached_tokens: int
    """Prompt tokens that were not computed again (same group, or an earlier turn)."""
    busy_s: float
    num_attended_pairs: int = 0
    """Pairs of a token that was sampled or computed of a prompt, and one that it attended to. The
    last token of a turn is counted, though only the next turn computes it."""
    loop_blocked_s: float = 0.0
    """Seconds for which the engine kept the event loop from running: deadlines of environments
    leave them out."""
    num_cache_tokens: int = 0
    """Size of the KV cache (tokens); 0 where no rollout ever has to wait for room in it."""
    reserved_token_s: float = 0.0
    """Tokens of the cache that rollouts have reserved, times the seconds of sampling."""
    num_cache_waits: int = 0
    """Turns that had to wait for room in the cache."""
    cache_wait_s: float = 0.0
    """Seconds of these waits, over all rollouts."""


def sum_stats(parts: Sequence[EngineStats]) -> EngineStats:
    """Return the counters of several engines added up."""
    return EngineStats(
        num_sampled_tokens=sum(part.num_sampled_tokens for part in parts),
        num_prefill_tokens=sum(part.num_prefill_tokens for part in parts),
        num_cached_tokens=sum(part.num_cached_tokens for part in parts),
        busy_s=sum(part.busy_s for part in parts),
        num_attended_pairs=sum(part.num_attended_pairs for part in parts),
        loop_blocked_s=sum(part.loop_blocked_s for part in parts),
        num_cache_tokens=sum(part.num_cache_tokens for part in parts),
        reserved_token_s=sum(part.reserved_token_s for part in parts),
        num_cache_waits=sum(part.num_cache_waits for part in parts),
        cache_wait_s=sum(part.cache_wait_s for part in parts),
    )


def attended_pairs(first: int, end: int) -> int:
    """Count the pairs of the tokens at positions `first` to `end` - 1, each with those up to it."""
    return (end * (end + 1) - first * (first + 1)) // 2


class Engine(Protocol):
    """Samples continuations from the current weights, which `trainer.weights` transfers to it.

    A `session` names a growing token list (one trajectory): a later request of the same session
    whose `prompt_ids` extend what the engine already saw computes only the new part. Requests
    with the same `prefix_key` share one prefill of their common prompt (one prefill per group);
    an empty one is shared with no other request.
    """

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        """Continue `prompt_ids`; requests in flight at once are decoded as one batch.

        Raises:
            EngineError: the prompt does not fit the context, or the forward pass failed.
        """
        ...

    def release(self, session: str) -> None:
        """Forget a session's cache; unknown names are ignored."""
        ...

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        ...

    @property
    def weight_version(self) -> int:
        """Version of the weights that sample now."""
        ...

    def stats(self) -> EngineStats:
        """Return the counters since start."""
        ...

    async def close(self) -> None:
        """Stop background work and free memory."""
        ...


@runtime_checkable
class Restartable(Protocol):
    """An engine whose process is restarted when it dies, while its requests wait."""

    @property
    def ready_since(self) -> float:
        """Time when the process that answered last became ready (this one's monotonic clock)."""
        ...

    async def health_check(self) -> bool:
        """Return True when the engine can sample; False while it is away, or loads its model.

        Raises:
            EngineError: it died more often than its restart limit.
        """
        ...

    async def score(self, token_ids: Sequence[int]) -> None:
        """Score a sequence as `logprobs` does, without the result: the asker needs no torch."""
        ...


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can leave its GPU to a learner."""

    async def sleep(self, level: int) -> None:
        """Complete the requests that have begun, then give cache and weights back; others wait.

        Level 1 keeps the weights in the machine's memory, level 2 discards them.

        Raises:
            EngineError: it did not fall asleep.
        """
        ...

    async def wake_weights(self) -> None:
        """Take memory for the weights; after level 2 they are undefined until the next sync.

        Raises:
            EngineError: there was no memory for them.
        """
        ...

    async def wake_cache(self) -> None:
        """Take memory for an empty cache, and serve the requests that wait.

        Raises:
            EngineError: there was no memory for it.
        """
        ...


@runtime_checkable
class HasCopies(Protocol):
    """Several copies of an engine, each with sessions of its own."""

    def copy(self, number: int) -> Engine:
        """Return one of the copies, from 0."""
        ...
