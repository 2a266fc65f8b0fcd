import asyncio
import os
import signal
import time

import pytest

from trainer.attempt.stop_signal import StopRequested, StopSignal
from trainer.errors import AttemptSuperseded


async def forever(cancelled: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append("yes")


async def test_work_that_ends_is_returned() -> None:
    async def work() -> int:
        return 7

    assert await StopSignal().race(work()) == 7


async def test_a_request_cancels_the_work_and_waits_until_it_is_gone() -> None:
    stop, cancelled = StopSignal(), list[str]()
    asyncio.get_running_loop().call_soon(stop.request_stop)
    with pytest.raises(StopRequested):
        await stop.race(forever(cancelled))
    assert cancelled == ["yes"]


async def test_a_superseded_attempt_is_told_so_from_another_thread() -> None:
    stop, cancelled = StopSignal(), list[str]()
    waiting = asyncio.create_task(stop.race(forever(cancelled)))
    await asyncio.to_thread(stop.fence)
    with pytest.raises(AttemptSuperseded):
        await waiting
    with pytest.raises(AttemptSuperseded):
        stop.check()


async def test_an_error_of_the_work_comes_through() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await StopSignal().race(work())


async def test_without_a_request_nothing_is_raised() -> None:
    StopSignal().check()


async def test_a_trainer_that_is_held_takes_many_signals_for_one_request() -> None:
    stop = StopSignal()
    stop.listen(is_supervised=True)
    try:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
        with pytest.raises(StopRequested):
            stop.check()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_signal_ends_a_start_that_keeps_the_loop_from_running() -> None:
    stop, cleaned = StopSignal(), list[str]()
    stop.listen()
    try:
        began = time.monotonic()
        with pytest.raises(StopRequested), stop.interrupts():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(20.0)
            finally:
                os.kill(os.getpid(), signal.SIGINT)  # a second one does not cut the clean-up off
                time.sleep(0.01)
                cleaned.append("yes")
        assert (time.monotonic() - began < 10.0, cleaned) == (True, ["yes"])
        stop._is_supervised = True  # the loop now reads both signals, and the second would exit
        await asyncio.sleep(0.01)
        with pytest.raises(StopRequested), stop.interrupts():
            cleaned.append("begun although a stop was requested before")
        assert cleaned == ["yes"]
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
