"""Prompts per step of each environment, from weights; in whole numbers only, so nothing drifts."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pydantic import JsonValue

from trainer.errors import CheckpointError


class Shares:
    """Turns weights into counts per step whose running sums follow the weights.

    Every environment first gets `minimum` prompts of each step, or all its tasks where it has
    fewer; where a step has too few prompts for that, the minimums take turns. The rest goes by
    weight: each environment earns its share of every step as credit and the largest credits are
    paid out in whole prompts, so counts stay within a few prompts of their expectation for ever
    and an environment of tiny weight is drawn at a regular interval, never by luck.
    No environment gives more prompts to a step than it has tasks; others take what it cannot.
    """

    def __init__(
        self, weights: Sequence[int], *, prompts: int, sizes: Sequence[int], minimum: int
    ) -> None:
        least = [min(minimum, size) for size in sizes]
        self._turns = [index for index, count in enumerate(least) for _ in range(count)]
        self._is_rotating = len(self._turns) > prompts
        self._least = least
        self._room = [size - count for size, count in zip(sizes, least, strict=True)]
        self._prompts = prompts
        self._turn = 0
        self._credits = [0] * len(sizes)
        self._total = sum(weights)
        self._quotas: list[int] = []
        self.reweight(weights)

    def reweight(self, weights: Sequence[int]) -> None:
        """Use other weights from the next step on; remainders of earlier steps are kept.

        Raises:
            ValueError: a weight is not positive, or their sum is not the sum of the first ones.
        """
        if min(weights) < 1 or sum(weights) != self._total:
            raise ValueError("weights must be positive and keep their sum")
        if not self._is_rotating:
            self._quotas = _quotas(weights, self._prompts - sum(self._least), self._room)

    def next_counts(self) -> list[int]:
        """Return each environment's prompts in the next step; the sum is the step's prompts."""
        if self._is_rotating:
            return self._rotate()
        counts = list(self._least)
        self._credits = [
            credit + quota for credit, quota in zip(self._credits, self._quotas, strict=True)
        ]
        ranks = [(-credit, index) for index, credit in enumerate(self._credits)]
        heap = [rank for rank in ranks if self._room[rank[1]]]
        heapq.heapify(heap)
        for _ in range(self._prompts - sum(counts)):
            debt, index = heap[0]
            counts[index] += 1
            self._credits[index] -= self._total
            if counts[index] < self._least[index] + self._room[index]:
                heapq.heapreplace(heap, (debt + self._total, index))
            else:
                heapq.heappop(heap)
        return counts

    def state(self) -> dict[str, JsonValue]:
        """Return the weights' fractional remainders, not yet rounded into prompts, as JSON."""
        return {"turn": self._turn, "credits": list(self._credits)}

    def restore(self, state: JsonValue) -> None:
        """Resume from a `state` of shares made with the same arguments.

        Raises:
            CheckpointError: the state is malformed.
        """
        match state:
            case {"turn": int(turn), "credits": list(credits)}:
                earned = [credit for credit in credits if isinstance(credit, int)]
                is_whole = len(earned) == len(credits) == len(self._credits) and not sum(earned)
                if is_whole and 0 <= turn <= len(self._turns):
                    self._turn, self._credits = turn, earned
                    return
        raise CheckpointError("sampler state is malformed: the environments' shares")

    def _rotate(self) -> list[int]:
        counts = [0] * len(self._least)
        for offset in range(self._prompts):
            counts[self._turns[(self._turn + offset) % len(self._turns)]] += 1
        self._turn = (self._turn + self._prompts) % len(self._turns)
        return counts


def _quotas(weights: Sequence[int], prompts: int, room: Sequence[int]) -> list[int]:
    """Split `prompts` by weight, none above its room; in units of 1 / sum(weights) prompts.

    Exact where no room binds. Where one does, the excess goes to the others by their weights
    (water-filling) and is rounded to whole units by largest remainder.
    """
    total = sum(weights)
    quotas = [0] * len(weights)
    remaining, free = prompts * total, list(range(len(weights)))
    while True:
        weight = sum(weights[index] for index in free)
        saturated = [
            each for each in free if remaining * weights[each] > room[each] * total * weight
        ]
        if not saturated:
            break
        for index in saturated:
            quotas[index] = room[index] * total
        remaining -= sum(quotas[index] for index in saturated)
        free = [index for index in free if index not in saturated]
    for index in free:
        quotas[index] = remaining * weights[index] // weight
    short = prompts * total - sum(quotas)
    remainders = sorted(free, key=lambda index: (-(remaining * weights[index] % weight), index))
    for index in remainders[:short]:
        quotas[index] += 1
    return quotas
