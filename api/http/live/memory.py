"""Returns memory that large answers took to the machine.

glibc keeps what a thread frees for that thread's next allocations: after an answer with a million
metric points a process stayed at twice its size. It gives back what it is asked to.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from anyio.to_thread import run_sync

EVERY_S = 10.0
GROWTH = 1.1
"""Of the resident memory since the last time, from which on it is worth the milliseconds."""
_STATM = Path("/proc/self/statm")
Trim = Callable[[int], int]


def malloc_trim() -> Trim | None:
    """Return glibc's function; None with another library, as on macOS or Alpine."""
    try:
        trim: Trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return trim if _STATM.exists() else None


def resident_bytes() -> int:
    """Return the memory of this process that is in the machine's."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def return_memory(every_s: float = EVERY_S) -> AsyncIterator[None]:
    """Look every few seconds while the block runs, and return what is free after growth."""
    trim = malloc_trim()
    if trim is None:
        yield
        return
    task = asyncio.create_task(_keep_small(trim, every_s))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _keep_small(trim: Trim, every_s: float) -> None:
    least = resident_bytes()
    while True:
        await asyncio.sleep(every_s)
        if resident_bytes() > GROWTH * least:
            await run_sync(trim, 0)
            least = resident_bytes()
        least = min(least, resident_bytes())
