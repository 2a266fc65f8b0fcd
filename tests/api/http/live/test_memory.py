"""Memory that threads have freed goes back to the machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from api.http.live import memory

pytestmark = pytest.mark.skipif(memory.malloc_trim() is None, reason="needs glibc")
FRAGMENTED = """
import threading
from api.http.live.memory import malloc_trim, resident_bytes

kept = []

def answer():
    # Blocks of malloc's, among which a few stay: so none of its heaps shrinks by itself.
    blocks = [bytes(20_000) for _ in range(3_000)]
    kept.extend(blocks[::200])

before = resident_bytes()
threads = [threading.Thread(target=answer) for _ in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
after = resident_bytes()
malloc_trim()(0)
print(after - before, resident_bytes() - before)
"""


def test_blocks_that_threads_have_freed_are_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True, timeout=60
    )
    grown, left = map(int, done.stdout.split())
    assert grown > 50_000_000
    assert left < grown / 4


@pytest.mark.parametrize(("sizes", "times"), [([100, 150, 170, 120, 140], 3), ([100, 105, 109], 0)])
async def test_it_is_asked_to_only_after_growth(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], times: int
) -> None:
    asked: list[int] = []
    number = 0

    def resident() -> int:
        return sizes[min(number, len(sizes) - 1)]

    def trim(pad: int) -> int:
        asked.append(pad)
        return 1

    async def sleep(_: float) -> None:
        nonlocal number
        number += 1
        if number > len(sizes) + 1:
            raise TimeoutError

    monkeypatch.setattr(memory, "resident_bytes", resident)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(TimeoutError):
        await memory._keep_small(trim, 1.0)
    assert asked == [0] * times
