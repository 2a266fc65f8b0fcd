"""How a number of tasks is cut and shared between environments."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.datasets.split.caps import largest_cap, take_turns
from tests.hillclimb.datasets.split.made import SIZES, quick


def test_without_environments_there_is_no_cap() -> None:
    assert largest_cap({}, 0.5) is None


@quick
@given(sizes=SIZES, share=st.sampled_from([0.2, 0.25, 0.34, 0.5, 0.9, 1.0]))
def test_the_largest_cap_is_the_largest(sizes: dict[str, int], share: float) -> None:
    def holds(cap: int) -> bool:
        return cap <= Fraction(str(share)) * sum(min(size, cap) for size in sizes.values())

    cap = largest_cap(sizes, share)
    best = max((c for c in range(max(sizes.values()) + 1) if holds(c)), default=0)
    assert cap == (best or None)


@quick
@given(sizes=SIZES, budget=st.integers(-3, 200))
def test_turns_are_fair(sizes: dict[str, int], budget: int) -> None:
    quotas = take_turns(sizes, budget)
    expected = dict.fromkeys(sizes, 0)
    left = budget
    while left > 0 and any(expected[env] < sizes[env] for env in sizes):
        for env in sorted(sizes):
            if left > 0 and expected[env] < sizes[env]:
                expected[env] += 1
                left -= 1
    assert quotas == expected
