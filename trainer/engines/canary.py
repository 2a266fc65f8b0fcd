"""The canary after every weight sync: engine and learner score the same tokens alike.

`trainer.weights.digests` compares bit by bit that every tensor arrived. It does not see what the
engine does with them: tensors in the wrong place or layout, a kernel that computes something else.
Scoring fixed tokens on both sides finds that, as far as it is larger than rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from hillclimb.hardware.model.shapes import ExpertShape
from trainer.errors import NonFiniteUpdate, WeightSyncMismatch

TOLERANCE = 1e-4
"""Mean |difference| of log-probs in float32; without a fault they agree to 3e-5 (tests)."""
BFLOAT16_TOLERANCE = 0.3
"""The same where a side computes in bfloat16, at the first sync. Without a fault 0.17 at most was
seen (on a GPU), on the shipped models, in which the canary's tokens have log-probs around -11."""
MARGIN, LEAST_BFLOAT16_TOLERANCE = 5.0, 0.1
"""From the second sync on it is this many times the first gap, between the two tolerances."""

NUM_CANARY_TOKENS = 32
"""Of a model in which every token is multiplied with every weight."""
NUM_TEXT_TOKENS = 64
TEXT = (
    "The runner writes each event to a file first, and then sends it to the service. If the service"
    " is away, it tries again later, so that nothing is lost.\n"
    '{"name": "search", "arguments": {"query": "open orders of last week", "limit": 20}}\n'
)
"""Text such as models were trained on: log-probs of unlikely tokens are large numbers, in which
bfloat16 rounds away more."""


class Scores(Protocol):
    """Either side of the comparison."""

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs at T=1."""
        ...


def canary_tokens(vocab_size: int, count: int = NUM_CANARY_TOKENS) -> tuple[int, ...]:
    """Fixed tokens spread over the vocabulary (a stride prime to most sizes)."""
    return tuple((7 + 7919 * index) % vocab_size for index in range(count))


def num_canary_tokens(experts: ExpertShape | None, *, max_length: int) -> int:
    """Return how many tokens the canary scores; at most `max_length`.

    With experts as many more as there are more of them than a token gets, so that an expert too
    computes about 32 tokens: the canary says nothing of one that computed none.
    """
    if experts is None:
        return NUM_CANARY_TOKENS
    count = NUM_CANARY_TOKENS * experts.num // experts.per_token
    return max(NUM_CANARY_TOKENS, min(count, max_length))


def text_tokens(
    ids: Sequence[int], vocab_size: int, count: int = NUM_CANARY_TOKENS
) -> tuple[int, ...]:
    """Return the tokens to score: the first of those of `TEXT`, if the model has them.

    Tokens spread over the vocabulary follow where `count` is more than those of the text.
    """
    tokens = tuple(ids[:NUM_TEXT_TOKENS])
    if len(tokens) <= 1 or max(tokens) >= vocab_size:
        return canary_tokens(vocab_size, count)
    return tokens + canary_tokens(vocab_size, max(count - len(tokens), 0))


def canary_tolerance(*dtypes: str) -> float:
    """Return the gap allowed between sides that compute in `dtypes`."""
    return BFLOAT16_TOLERANCE if "bfloat16" in dtypes else TOLERANCE


async def canary_gap(
    engine: Scores, learner: Scores, token_ids: Sequence[int], *, tolerance: float = TOLERANCE
) -> float:
    """Mean |log-prob difference| between both sides over `token_ids`.

    Raises:
        NonFiniteUpdate: the learner's own weights give no numbers, so the sync is not to blame.
        WeightSyncMismatch: the gap is above `tolerance`, or not a number.
    """
    served = await engine.logprobs(token_ids)
    trained = await learner.logprobs(token_ids)
    if not bool(trained.isfinite().all()):
        raise NonFiniteUpdate("the policy's log-probs are NaN or infinite: lower optimizer.lr")
    gap = float((served - trained).abs().mean())
    if not gap <= tolerance:
        raise WeightSyncMismatch(
            f"engine and learner differ by {gap:.3g} in mean log-prob over {len(token_ids)} fixed"
            f" tokens (allowed: {tolerance:g}): a weight was not transferred"
        )
    return gap


@dataclass(frozen=True, slots=True)
class _Known:
    """Scores from before."""

    scores: torch.Tensor

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Return the scores."""
        assert len(token_ids) == len(self.scores) + 1
        return self.scores


class Canary:
    """The comparison of a run: its tokens, the learner's scores, and what may differ."""

    def __init__(self, token_ids: Sequence[int], *, tolerance: float) -> None:
        """`tolerance` is that of the first sync."""
        self._token_ids, self._tolerance = tuple(token_ids), tolerance
        self._most, self._is_calibrated = tolerance, False
        self._trained: _Known | None = None

    async def score(self, learner: Scores) -> None:
        """Score the learner's weights, which are about to be synced.

        Once for all engines, and before these use a GPU that both share.
        """
        self._trained = _Known(await learner.logprobs(self._token_ids))

    async def gap(self, engines: Sequence[Scores]) -> float:
        """Return the largest gap of an engine (nats).

        Raises:
            NonFiniteUpdate, WeightSyncMismatch: as `canary_gap`.
        """
        assert self._trained is not None, "the learner was not scored"
        gaps = [
            await canary_gap(engine, self._trained, self._token_ids, tolerance=self._tolerance)
            for engine in engines
        ]
        if not self._is_calibrated:
            # In float32 it stays what it was.
            least = min(LEAST_BFLOAT16_TOLERANCE, self._most)
            self._tolerance = min(self._most, max(least, MARGIN * max(gaps)))
            self._is_calibrated = True
        return max(gaps)
