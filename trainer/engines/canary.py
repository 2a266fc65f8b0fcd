"""The canary after every weight sync: engine and learner score the same tokens alike.

`trainer.weights.digests` compares bit by bit that every tensor arrived. It does not see what the
engine does with them: tensors in the wrong place or layout, a kernel that computes something else.
Scoring fixed tokens on both sides finds that, as far as it is larger than rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from hillclimb.hardware.model.shapes import ExpertShape
from trainer.errors import NonFiniteUpdate, WeightSyncMismatch

TOLERANCE = 1e-4
"""Mean |difference| of log-probs in float32; without a fault they agree to 3e-5 (tests)."""
BFLOAT16_TOLERANCE = 0.3
"""The same where a side computes in bfloat16. Without a fault 0.12 at most was seen, on the shipped
model, in which the canary's tokens have log-probs around -13."""

NUM_CANARY_TOKENS = 32
"""Of a model in which every token is multiplied with every weight."""


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
