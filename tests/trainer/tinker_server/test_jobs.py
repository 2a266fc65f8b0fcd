"""Jobs are done once, in order, and say how they ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from trainer.tinker_server.errors import Busy, Gone, RequestRefused
from trainer.tinker_server.jobs import KEEP_S, FutureTable, Result


def noting(log: list[str], name: str, delay_s: float = 0.0) -> Callable[[], Awaitable[Result]]:
    async def work() -> Result:
        await asyncio.sleep(delay_s)
        log.append(name)
        return {"name": name}

    return work


async def test_queued_jobs_are_done_in_order_and_others_beside_them() -> None:
    jobs, log = FutureTable(), []
    slow = jobs.queue("a", noting(log, "slow", 0.05))
    quick = jobs.queue("b", noting(log, "quick"))
    beside = jobs.start("c", noting(log, "beside"))
    for job in (slow, quick, beside):
        await jobs.result(job, wait_s=5.0)
    assert log == ["beside", "slow", "quick"]
    await jobs.close()


async def test_a_job_that_is_asked_for_twice_is_done_once() -> None:
    jobs, log = FutureTable(), []
    first = jobs.queue("a", noting(log, "one"))
    assert jobs.queue("a", noting(log, "two")) == first
    assert await jobs.result(first, wait_s=5.0) == {"name": "one"}
    assert await jobs.result(first, wait_s=5.0) == {"name": "one"}
    assert log == ["one"]
    await jobs.close()


async def test_one_that_is_not_done_yet_is_asked_for_again() -> None:
    jobs, log = FutureTable(), []
    job = jobs.queue("a", noting(log, "slow", 0.1))
    assert await jobs.result(job, wait_s=0.01) is None
    assert await jobs.result(job, wait_s=5.0) == {"name": "slow"}
    await jobs.close()


async def test_a_failure_says_whose_it_is_and_the_next_job_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs, log = FutureTable(), []

    def failing(fault: Exception) -> Callable[[], Awaitable[Result]]:
        async def work() -> Result:
            raise fault

        return work

    ends = [
        await jobs.result(jobs.queue(number, failing(fault)), wait_s=5.0)
        for number, fault in enumerate(
            (RequestRefused("no"), Busy("later"), ZeroDivisionError("oh"))
        )
    ]
    assert ends == [
        {"error": "no", "category": "user"},
        {"error": "later", "category": "server"},
        {"error": "ZeroDivisionError: oh", "category": "server"},
    ]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert await jobs.result(jobs.queue("b", noting(log, "next")), wait_s=5.0) == {"name": "next"}
    await jobs.close()


async def test_results_are_forgotten_after_a_while() -> None:
    now = [0.0]
    jobs, log = FutureTable(lambda: now[0]), []
    job = jobs.queue("a", noting(log, "one"))
    await jobs.result(job, wait_s=5.0)
    now[0] = KEEP_S + 1.0
    jobs.queue("b", noting(log, "two"))
    with pytest.raises(Gone, match="there is no request"):
        await jobs.result(job, wait_s=5.0)
    await jobs.close()
