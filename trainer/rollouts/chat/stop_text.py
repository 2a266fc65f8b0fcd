"""Ends a sampled turn at a text, for engines that stop at tokens only."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from trainer.rollouts.chat.chat import Chat
from trainer.types import Sample


def cut_at(sample: Sample, text: str | None, chat: Chat) -> Sample:
    """Return the sample up to the token that completes `text`; the same sample without it.

    Each token is drawn from those before it alone, so the tokens kept are those that an engine
    would have drawn which stops at the text.
    """
    ids = sample.token_ids
    if text is None or text not in chat.decode(ids):
        return sample
    # The text is in every prefix from some length on: 0 before it, 1 from it.
    lengths = range(1, len(ids) + 1)
    end = 1 + bisect_left(lengths, 1, key=lambda length: int(text in chat.decode(ids[:length])))
    return replace(
        sample,
        token_ids=ids[:end],
        logprobs=sample.logprobs[:end],
        weight_versions=sample.weight_versions[:end],
        stopped=True,
    )
