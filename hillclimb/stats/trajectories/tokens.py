"""Tokens of a stored trajectory, with what engine and learner computed about each.

Positions count from 0 over the whole trajectory. Turn 0 is the prompt; turn n is the n-th turn of
the model with the environment's answer to it.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from statistics import fmean
from typing import TypeAlias

from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues, StoredTrajectory

Text: TypeAlias = str | bytes
"""Text of a token, or its bytes where it ends within a character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """One token. What nobody computed is None; so is everything for a token that was not drawn."""

    position: int
    token_id: int
    text: Text | None
    """None: texts were not stored."""
    turn: int
    is_drawn: bool
    """The policy drew it: these tokens, and only these, enter the loss."""
    engine_logprob: float | None
    """Log-prob of the engine that drew it, at the sampling temperature (nats)."""
    gap: float | None
    """Log-prob of the learner less that of the engine (nats)."""
    entropy: float | None
    """Entropy of the learner's distribution (nats)."""
    weight_version: int | None

    @property
    def learner_logprob(self) -> float | None:
        """Log-prob of the learner (nats); a sum of two rounded numbers, cut off at 0."""
        if self.engine_logprob is None or self.gap is None:
            return None
        return min(self.engine_logprob + self.gap, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOfTokens:
    """The tokens of one turn, from `start` up to `end`, with figures over those drawn."""

    turn: int
    start: int
    end: int
    num_drawn: int
    mean_abs_gap: float | None
    max_abs_gap: float | None
    mean_entropy: float | None
    weight_versions: tuple[int, ...]
    """In ascending order."""


@dataclass(frozen=True, kw_only=True)
class RolloutTokens:
    """All tokens of a rollout; the last four have one number per drawn token, or are None."""

    token_ids: Sequence[int]
    drawn: Sequence[int]
    """1 where the policy drew the token."""
    starts: Sequence[int]
    """Position of each turn's first token, and at last the number of tokens."""
    turns: Sequence[int]
    """Number of each turn in `starts`."""
    vocabulary: Sequence[Text] | None
    logprobs: Sequence[float] | None
    versions: Sequence[int] | None
    gaps: Sequence[float] | None
    entropies: Sequence[float] | None

    def facts(self, start: int, end: int) -> Iterator[TokenFacts]:
        """Yield the tokens from one position up to another."""
        for turn, (first, last) in zip(self.turns, pairwise(self.starts), strict=True):
            for position in range(max(start, first), min(end, last)):
                yield self._facts(position, turn)

    def in_turns(self) -> list[TurnOfTokens]:
        """Return the turns that have tokens."""
        return [
            self._turn(turn, start, end)
            for turn, (start, end) in zip(self.turns, pairwise(self.starts), strict=True)
            if start < end
        ]

    def largest_gaps(self, number: int) -> list[TokenFacts]:
        """Return the drawn tokens about which engine and learner disagree most, that one first."""
        gaps = self.gaps
        if gaps is None:
            return []
        positions = [at for at, drawn in enumerate(self.drawn) if drawn]
        order = sorted(range(len(gaps)), key=lambda ordinal: (-abs(gaps[ordinal]), ordinal))
        places = [positions[ordinal] for ordinal in order[:number]]
        return [next(self.facts(place, place + 1)) for place in places]

    @cached_property
    def _ordinals(self) -> list[int]:
        """Number of drawn tokens before each position."""
        return list(accumulate(self.drawn, initial=0))

    def _facts(self, position: int, turn: int) -> TokenFacts:
        token_id, ordinal = self.token_ids[position], self._ordinals[position]
        is_drawn = bool(self.drawn[position])

        def own(values: Sequence[float] | None) -> float | None:
            return values[ordinal] if is_drawn and values is not None else None

        return TokenFacts(
            position=position,
            token_id=token_id,
            text=self._text(token_id),
            turn=turn,
            is_drawn=is_drawn,
            engine_logprob=own(self.logprobs),
            gap=own(self.gaps),
            entropy=own(self.entropies),
            weight_version=self.versions[ordinal] if is_drawn and self.versions else None,
        )

    def _text(self, token_id: int) -> Text | None:
        vocabulary = self.vocabulary or ()
        return vocabulary[token_id] if 0 <= token_id < len(vocabulary) else None

    def _turn(self, turn: int, start: int, end: int) -> TurnOfTokens:
        part = slice(self._ordinals[start], self._ordinals[end])
        gaps = [abs(gap) for gap in self.gaps[part]] if self.gaps else []
        entropies = self.entropies[part] if self.entropies else ()
        return TurnOfTokens(
            turn=turn,
            start=start,
            end=end,
            num_drawn=part.stop - part.start,
            mean_abs_gap=fmean(gaps) if gaps else None,
            max_abs_gap=max(gaps, default=None),
            mean_entropy=fmean(entropies) if entropies else None,
            weight_versions=tuple(sorted(set(self.versions[part]))) if self.versions else (),
        )


def tokens_of(
    stored: StoredTrajectory,
    values: StoredTokenValues | None = None,
    vocabulary: Sequence[Text] | None = None,
) -> RolloutTokens:
    """Return the tokens of a trajectory; `values` are the learner's, where it learned from it.

    Raises:
        ValueError: mask or values are of another number of tokens, or not as the trainer writes
            them.
    """
    if len(stored.action_mask) != len(stored.token_ids) or not {0, 1}.issuperset(
        stored.action_mask
    ):
        raise ValueError("the mask is not one 0 or 1 per token")
    num_drawn = sum(stored.action_mask)
    begins = dict(_begins(stored, num_drawn))
    if 0 not in begins:
        begins = {0: 0} | begins
    return RolloutTokens(
        token_ids=stored.token_ids,
        drawn=stored.action_mask,
        starts=(*begins, len(stored.token_ids)),
        turns=tuple(begins.values()),
        vocabulary=vocabulary,
        logprobs=stored.logprobs if len(stored.logprobs) == num_drawn else None,
        versions=stored.weight_versions if len(stored.weight_versions) == num_drawn else None,
        gaps=_numbers(values.gaps, num_drawn) if values else None,
        entropies=_numbers(values.entropies, num_drawn) if values else None,
    )


def _begins(stored: StoredTrajectory, num_drawn: int) -> Iterator[tuple[int, int]]:
    """Yield the position of each turn's first token with the number of the turn.

    Without the turns' numbers of tokens, as in files of before, a turn is a run of drawn tokens.
    """
    sizes = [turn.num_tokens for turn in stored.turn_tokens]
    if sum(sizes) != num_drawn or min(sizes, default=0) < 0:
        runs = groupby(enumerate(stored.action_mask), key=lambda each: each[1])
        firsts = (next(run)[0] for is_drawn, run in runs if is_drawn)
        yield from ((first, number) for number, first in enumerate(firsts, start=1))
        return
    positions = [at for at, is_drawn in enumerate(stored.action_mask) if is_drawn]
    for number, (size, begin) in enumerate(
        zip(sizes, accumulate(sizes, initial=0), strict=False), start=1
    ):
        if size:
            yield positions[begin], number


def _numbers(text: str | None, length: int) -> list[float] | None:
    if text is None:
        return None
    try:
        numbers = struct.unpack(f"<{length}e", base64.b64decode(text, validate=True))
    except (struct.error, binascii.Error) as error:
        raise ValueError(f"not {length} numbers: {error}") from error
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return list(numbers)
