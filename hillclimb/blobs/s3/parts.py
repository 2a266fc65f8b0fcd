"""Multipart transfer of large files, several parts at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PART_BYTES = 16 * 1024 * 1024
MULTIPART_FROM = PART_BYTES + 1
"""Files of this size and more are transferred in parts."""
MOST_PARTS = 10_000
"""Limit of S3; larger files have larger parts."""
AT_ONCE = 4
"""Parts in flight, each in memory: 64 MiB for files up to 156 GiB."""


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range of a file; numbers count from 1."""

    number: int
    start: int
    length: int


def plan_parts(size: int) -> tuple[Part, ...]:
    """Return the parts of a file of `size` bytes; an empty one has none."""
    length = max(PART_BYTES, -(-size // MOST_PARTS))
    starts = range(0, size, length)
    return tuple(
        Part(number, start, min(length, size - start)) for number, start in enumerate(starts, 1)
    )


def at_once(carry: Callable[[Part], T], parts: Sequence[Part]) -> list[T]:
    """Call `carry` for each part, several at once, and return the results in order.

    After the first failure no further part starts; it is raised once those in flight have ended.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="parts") as pool:
        futures = [pool.submit(carry, part) for part in parts]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()
        return [future.result() for future in futures]
