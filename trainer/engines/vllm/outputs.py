"""Log-probs and weight versions of the tokens in vLLM's outputs."""

from __future__ import annotations

from collections.abc import Mapping

from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput


def drawn_logprobs(completion: CompletionOutput) -> tuple[float, ...]:
    """Return the log-prob of each token that was drawn."""
    assert completion.logprobs is not None
    pairs = zip(completion.token_ids, completion.logprobs, strict=True)
    return tuple(logprob_of(token, row) for token, row in pairs)


def logprob_of(token: int, row: Mapping[int, Logprob] | None) -> float:
    """Return the log-prob of a token at its position."""
    # Skipping a missing one would assign all later log-probs to the wrong tokens.
    assert row is not None, "a token without a log-probability"
    return row[token].logprob


def drawn_versions(completion: CompletionOutput) -> tuple[int, ...]:
    """Return the version of the weights that drew each token."""
    spans = completion.weight_versions or []
    versions = [int(span.version) for span in spans for _ in range(span.start, span.end)]
    assert len(versions) == len(completion.token_ids), "a token without a weight version"
    return tuple(versions)
