"""The engine port: who samples. Token ids in, token ids and log-probs out; no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from trainer.types import Sample, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since start; the loop reports their differences per step."""

    num_sampled_tokens: int
    num_prefill_tokens: int
    num_cached_tokens: int
    """Prompt tokens that were not computed again (same group, or an earlier turn)."""
    busy_s: float
    loop_blocked_s: float = 0.0
    """Seconds for which the engine kept the event loop from running: deadlines of environments
    leave them out."""


def sum_stats(parts: Sequence[EngineStats]) -> EngineStats:
    """Return the counters of several engines added up."""
    return EngineStats(
        num_sampled_tokens=sum(part.num_sampled_tokens for part in parts),
        num_prefill_tokens=sum(part.num_prefill_tokens for part in parts),
        num_cached_tokens=sum(part.num_cached_tokens for part in parts),
        busy_s=sum(part.busy_s for part in parts),
        loop_blocked_s=sum(part.loop_blocked_s for part in parts),
    )


class Engine(Protocol):
    """Draws continuations from the current weights; how those get in is `trainer.weights`.

    A `session` names a growing token list (one trajectory): a later request of the same session
    whose `prompt_ids` extend what the engine already saw computes only the new part. Requests
    with the same `prefix_key` share one prefill of their common prompt (one prefill per group);
    an empty one says that nobody shares it.
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
        """The version of the weights that draw now."""
        ...

    def stats(self) -> EngineStats:
        """Counters since start."""
        ...

    async def close(self) -> None:
        """Stop background work and free memory."""
        ...


@runtime_checkable
class Restarts(Protocol):
    """An engine whose process is started again when it dies, while its requests wait."""

    @property
    def ready_since(self) -> float:
        """When what answered last had become able to draw (this process's monotonic clock)."""
        ...

    async def look(self) -> bool:
        """Ask whether it can draw; False while it is away, or loads its model.

        Raises:
            EngineError: it died more often than it is started again.
        """
        ...


@runtime_checkable
class HasCopies(Protocol):
    """Several copies of an engine, each with sessions of its own."""

    def copy_for(self, session: str, prefix_key: str) -> Engine:
        """The copy that a session is asked of."""
        ...
