import asyncio
import os
import signal
import time

import pytest

from trainer.attempt.stop_signal import StopRequested, StopSignal
from trainer.errors import AttemptSuperseded, PlacementError


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


def start_that_is_stopped(stop: StopSignal, done: list[str]) -> None:
    """Block the loop as imports do; a second signal must not cut the clean-up off."""
    with stop.interrupts():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20.0)
            done.append("waited")
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append("cleaned up")


def start_that_is_stopped_while_it_writes(stop: StopSignal, done: list[str]) -> None:
    with stop.interrupts():
        with stop.defers():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            done.append("written")
        done.append("went on")


def start_whose_library_fails_when_it_is_stopped(stop: StopSignal) -> None:
    """As `ray.init` does: it raises an error of its own from the interruption."""
    with stop.interrupts():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20.0)
        except StopRequested as stopped:
            raise PlacementError("Ray at this machine: AssertionError") from stopped


async def test_a_start_that_fails_because_it_is_stopped_was_stopped() -> None:
    stop = StopSignal()
    stop.listen(is_supervised=True)
    try:
        with pytest.raises(StopRequested) as stopped:
            start_whose_library_fails_when_it_is_stopped(stop)
        assert isinstance(stopped.value.__cause__, PlacementError)
    finally:
        await asyncio.sleep(0.01)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_start_that_fails_by_itself_has_failed() -> None:
    stop = StopSignal()
    stop.listen()
    try:
        with pytest.raises(PlacementError), stop.interrupts():
            raise PlacementError("no cluster answers")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_what_is_written_at_a_start_is_written_whole_before_the_stop() -> None:
    stop, done = StopSignal(), list[str]()
    stop.listen(is_supervised=True)
    try:
        with pytest.raises(StopRequested):
            start_that_is_stopped_while_it_writes(stop, done)
        assert done == ["written"]
    finally:
        await asyncio.sleep(0.01)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_signal_ends_a_start_that_keeps_the_loop_from_running() -> None:
    stop, done = StopSignal(), list[str]()
    stop.listen(is_supervised=True)  # the loop reads both signals afterwards
    try:
        with pytest.raises(StopRequested):
            start_that_is_stopped(stop, done)
        await asyncio.sleep(0.01)
        with pytest.raises(StopRequested):
            start_that_is_stopped(stop, done)
        assert done == ["cleaned up"], "the second start was not begun"
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
