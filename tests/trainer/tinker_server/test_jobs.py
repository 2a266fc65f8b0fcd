"""Jobs are done once, in order, and say how they ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from trainer.tinker_server import jobs as jobs_module
from trainer.tinker_server.errors import Busy, Gone, RequestRefused, TooManyJobs
from trainer.tinker_server.jobs import KEEP_S, FutureTable, Result


def noting(log: list[str], name: str, delay_s: float = 0.0) -> Callable[[], Awaitable[Result]]:
    async def work() -> Result:
        await asyncio.sleep(delay_s)
        log.append(name)
        return {"name": name}

    return work


async def test_queued_jobs_are_done_in_order_and_others_beside_them() -> None:
    jobs, log = FutureTable(), []
    slow = jobs.queue("a", noting(log, "slow", 0.05), owner="s")
    quick = jobs.queue("b", noting(log, "quick"), owner="s")
    beside = jobs.start("c", noting(log, "beside"), owner="s")
    for job in (slow, quick, beside):
        await jobs.result(job, wait_s=5.0)
    assert log == ["beside", "slow", "quick"]
    await jobs.close()


async def test_a_job_that_is_asked_for_twice_is_done_once() -> None:
    jobs, log = FutureTable(), []
    first = jobs.queue("a", noting(log, "one"), owner="s")
    assert jobs.queue("a", noting(log, "two"), owner="s") == first
    assert await jobs.result(first, wait_s=5.0) == {"name": "one"}
    assert await jobs.result(first, wait_s=5.0) == {"name": "one"}
    assert log == ["one"]
    await jobs.close()


async def test_one_that_is_not_done_yet_is_asked_for_again() -> None:
    jobs, log = FutureTable(), []
    job = jobs.queue("a", noting(log, "slow", 0.1), owner="s")
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
        await jobs.result(jobs.queue(number, failing(fault), owner="s"), wait_s=5.0)
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
    assert await jobs.result(jobs.queue("b", noting(log, "next"), owner="s"), wait_s=5.0) == {
        "name": "next"
    }
    await jobs.close()


async def test_results_are_forgotten_after_a_while() -> None:
    now = [0.0]
    jobs, log = FutureTable(lambda: now[0]), []
    job = jobs.queue("a", noting(log, "one"), owner="s")
    await jobs.result(job, wait_s=5.0)
    now[0] = KEEP_S + 1.0
    jobs.queue("b", noting(log, "two"), owner="s")
    with pytest.raises(Gone, match="there is no request"):
        await jobs.result(job, wait_s=5.0)
    await jobs.close()


async def test_owners_take_turns_however_much_one_of_them_has_queued() -> None:
    jobs, log = FutureTable(), []
    many = [jobs.queue(("a", each), noting(log, f"a{each}"), owner="a") for each in range(4)]
    few = [jobs.queue(("b", each), noting(log, f"b{each}"), owner="b") for each in range(2)]
    for job in (*many, *few):
        await jobs.result(job, wait_s=5.0)
    assert log == ["a0", "b0", "a1", "b1", "a2", "a3"]
    await jobs.close()


async def test_jobs_of_an_owner_that_is_gone_are_not_computed() -> None:
    """The one in the middle of a computation is, and the other owners' are."""
    jobs, log = FutureTable(), []
    running = jobs.queue("a0", noting(log, "running", 0.1), owner="a")
    waiting = jobs.queue("a1", noting(log, "waiting"), owner="a")
    drawing = jobs.start("a2", noting(log, "drawing", 60.0), owner="a")
    other = jobs.queue("b", noting(log, "other"), owner="b")
    beside = jobs.start("b2", noting(log, "beside", 0.05), owner="b")
    await asyncio.sleep(0.01)
    jobs.end("a", "its client is silent")
    for job in (waiting, drawing):
        ended = await jobs.result(job, wait_s=5.0)
        assert ended == {"error": "its client is silent", "category": "server"}
    for job in (running, other, beside):
        assert "name" in (await jobs.result(job, wait_s=5.0) or {})
    assert sorted(log) == ["beside", "other", "running"]
    await jobs.close()


async def test_a_session_has_so_many_jobs_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_QUEUED", 2)
    monkeypatch.setattr(jobs_module, "MAX_STARTED", 2)
    jobs, log, goes_on = FutureTable(), [], asyncio.Event()

    async def wait() -> Result:
        await goes_on.wait()
        return {}

    running = jobs.queue("running", wait, owner="a")
    await asyncio.sleep(0)
    for enter in (jobs.queue, jobs.start):
        ids = [enter((enter.__name__, n), wait, owner="a") for n in range(2)]
        with pytest.raises(TooManyJobs, match="2 requests under way"):
            enter((enter.__name__, 2), noting(log, "never"), owner="a")
        assert enter((enter.__name__, 1), wait, owner="a") == ids[1]
        enter((enter.__name__, "other"), noting(log, "other"), owner="b")
    goes_on.set()
    assert await jobs.result(running, wait_s=5.0) == {}
    assert await jobs.result(ids[1], wait_s=5.0) == {}
    last = jobs.start("last", noting(log, "last"), owner="a")
    assert await jobs.result(last, wait_s=5.0) == {"name": "last"}
    assert "never" not in log
    await jobs.close()
