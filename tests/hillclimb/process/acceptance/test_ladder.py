"""A ladder stops at its first failure, names the remedy, keeps its time and its secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from hillclimb.process.acceptance.ladder import (
    AcceptanceCheck,
    CheckFailed,
    CheckObservation,
    climb,
)
from hillclimb.process.redactor import Redactor

SECRET = "a-key-that-nobody-may-see"


@dataclass
class Rungs:
    """A ladder of plain functions."""

    acts: Sequence[tuple[str, Callable[[], Awaitable[str]]]]
    is_closed: bool = False
    climbed: list[str] = field(default_factory=list)

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        return [
            AcceptanceCheck(name=name, act=act, limit_s=0.05, late="try a faster peer")
            for name, act in self.acts
        ]

    async def close(self) -> None:
        self.is_closed = True


async def good() -> str:
    return f"said {SECRET}"


async def bad() -> str:
    raise CheckFailed(f"401 for {SECRET}", f"set the key, which is not {SECRET}")


async def hanging() -> str:
    await asyncio.Event().wait()
    return "never"


def climbed(ladder: Rungs) -> tuple[CheckObservation, ...]:
    return asyncio.run(
        climb(ladder, Redactor((SECRET,)), lambda each: ladder.climbed.append(each.name))
    )


def test_the_first_failure_ends_it_and_what_was_made_is_removed() -> None:
    ladder = Rungs([("one", good), ("two", bad), ("three", good)])
    one, two = climbed(ladder)
    assert (one.passed, two.passed) == (True, False)
    assert ladder.climbed == ["one", "two"]
    assert ladder.is_closed
    assert "set the key" in two.remedy


def test_no_observation_has_a_secret() -> None:
    texts = [each.seen + each.remedy for each in climbed(Rungs([("one", good), ("two", bad)]))]
    assert all(texts)
    assert not any(SECRET in text for text in texts)


def test_a_check_that_does_not_end_fails_in_its_time_with_its_remedy() -> None:
    (late,) = climbed(Rungs([("one", hanging), ("two", good)]))
    assert (late.passed, late.seen, late.remedy) == (
        False,
        "no end within 0.05 s",
        "try a faster peer",
    )
