import asyncio
import os
import signal

import pytest

from trainer.errors import AttemptSuperseded
from trainer.stopping import Stop, StopRequested


async def forever(cancelled: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append("yes")


async def test_work_that_ends_is_returned() -> None:
    async def work() -> int:
        return 7

    assert await Stop().unless(work()) == 7


async def test_a_request_cancels_the_work_and_waits_until_it_is_gone() -> None:
    stop, cancelled = Stop(), list[str]()
    asyncio.get_running_loop().call_soon(stop.ask)
    with pytest.raises(StopRequested):
        await stop.unless(forever(cancelled))
    assert cancelled == ["yes"]


async def test_a_superseded_attempt_is_told_so_from_another_thread() -> None:
    stop, cancelled = Stop(), list[str]()
    waiting = asyncio.create_task(stop.unless(forever(cancelled)))
    await asyncio.to_thread(stop.supersede)
    with pytest.raises(AttemptSuperseded):
        await waiting
    with pytest.raises(AttemptSuperseded):
        stop.check()


async def test_an_error_of_the_work_comes_through() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await Stop().unless(work())


async def test_without_a_request_nothing_is_raised() -> None:
    Stop().check()


async def test_a_trainer_that_is_held_takes_many_signals_for_one_request() -> None:
    stop = Stop()
    stop.listen(is_held=True)
    try:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
        with pytest.raises(StopRequested):
            stop.check()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
