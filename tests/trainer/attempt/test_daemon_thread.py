"""Work in a daemon thread: its result, its error, and a process that does not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from trainer.attempt.daemon_thread import start_in_daemon_thread


async def in_daemon_thread(work: Callable[[], object]) -> object:
    return await asyncio.wrap_future(start_in_daemon_thread(work, name="test"))


async def test_result_and_error_reach_the_one_who_awaits() -> None:
    assert await in_daemon_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 // 0)


@pytest.mark.parametrize("fails", [True, False])
async def test_nobody_gets_what_is_no_longer_awaited(*, fails: bool) -> None:
    gate = threading.Event()

    def work() -> int:
        gate.wait(10.0)
        return 1 // (0 if fails else 1)

    awaiting = asyncio.create_task(in_daemon_thread(work))
    await asyncio.sleep(0.05)
    awaiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await awaiting
    gate.set()
    await asyncio.sleep(0.05)


def test_a_process_ends_though_the_work_goes_on() -> None:
    code = (
        "import asyncio, time\n"
        "import time\n"
        "from trainer.attempt.daemon_thread import start_in_daemon_thread\n"
        "start_in_daemon_thread(lambda: time.sleep(60), name='test')\n"
    )
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
    assert time.monotonic() - started < 30.0
