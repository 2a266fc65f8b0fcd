"""Back-off and the two retry loops."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hillclimb.environment.retry import ExponentialBackoff, retry, retry_async


def test_pauses_double_up_to_the_longest_less_at_most_half() -> None:
    backoff, rng = ExponentialBackoff(first_s=0.5, longest_s=4.0), random.Random(0)
    for number, longest in enumerate((0.5, 1.0, 2.0, 4.0, 4.0)):
        pauses = [backoff.pause_s(number, rng) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    assert backoff.pause_s(10_000, rng) <= 4.0


def failing(times: int, seen: list[int]) -> Callable[[int], str]:
    def attempt(number: int) -> str:
        seen.append(number)
        if number < times:
            raise KeyError(number)
        return "done"

    return attempt


async def test_attempts_are_repeated_until_one_succeeds() -> None:
    seen: list[int] = []
    assert retry(failing(2, seen), faults=KeyError, pause_s=lambda *_: 0.0) == "done"

    async def attempt(number: int) -> str:
        return failing(2, seen)(number)

    assert await retry_async(attempt, faults=KeyError, pause_s=lambda *_: 0.0) == "done"
    assert seen == [0, 1, 2, 0, 1, 2]


async def test_the_fault_is_raised_where_the_caller_allows_no_other_attempt() -> None:
    seen: list[int] = []

    def pause_s(_: KeyError, number: int) -> float | None:
        return 0.0 if number < 1 else None

    with pytest.raises(KeyError, match="1"):
        retry(failing(9, seen), faults=KeyError, pause_s=pause_s)
    assert seen == [0, 1]

    async def attempt(number: int) -> str:
        return failing(9, seen)(number)

    with pytest.raises(KeyError, match="1"):
        await retry_async(attempt, faults=KeyError, pause_s=pause_s)


def test_other_errors_are_raised_at_once() -> None:
    seen: list[int] = []
    with pytest.raises(KeyError):
        retry(failing(1, seen), faults=ValueError, pause_s=lambda *_: 0.0)
    assert seen == [0]
