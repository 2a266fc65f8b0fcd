"""Distributes a limited number of tasks over environments, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction


def take_turns(sizes: Mapping[str, int], budget: int) -> dict[str, int]:
    """Return the number of tasks per environment when they take turns, in order of name.

    An environment drops out when it has no more tasks; the turns end with the budget. The result is
    max-min fair, and at most `budget` in total.
    """
    quotas = dict.fromkeys(sorted(sizes), 0)
    waiting = [name for name in quotas if sizes[name] > 0]
    remaining = max(0, budget)
    while waiting and remaining >= len(waiting):
        smallest = min(sizes[name] - quotas[name] for name in waiting)
        rounds = min(remaining // len(waiting), smallest)
        for name in waiting:
            quotas[name] += rounds
        remaining -= rounds * len(waiting)
        waiting = [name for name in waiting if sizes[name] > quotas[name]]
    for name in waiting[:remaining]:
        quotas[name] += 1
    return quotas


def largest_cap(sizes: Mapping[str, int], share: float) -> int | None:
    """Return the largest cap under which no environment exceeds `share` of the remaining tasks.

    None if no cap achieves that: with k environments the largest share is at least 1/k. The
    condition, c <= share * sum(min(n, c)), is concave in c and holds at 0, so it holds up to a
    largest c.
    """
    exact = Fraction(str(share))
    low, high = 0, max(sizes.values(), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if middle <= exact * sum(min(size, middle) for size in sizes.values()):
            low = middle
        else:
            high = middle - 1
    return low or None
