"""Instances whose manager does not reset them, and platforms that ask to wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import EnvAtCapacity, EnvUnavailable
from hillclimb.minifleet.server.routes.instance import InstanceManager
from hillclimb.minifleet.server.routes.orchestrator import Orchestrator
from hillclimb.protocol.outcomes import OutcomeStatus
from tests.trainer.envs.fleet.scene import LEASE, TASK, on_server, play
from tests.trainer.envs.fleet.test_rollouts import REQUEST, rolled
from trainer.envs.fleet import env as episode
from trainer.envs.fleet.instances.limiter import LONGEST_HOLD_S, Limiter

Route = Callable[[Any, Request], Awaitable[Response]]


def answers(body: Any, status: int = 200, **headers: str) -> Route:
    """A route that answers the same to every request."""

    async def answer(_part: Any, _request: Request) -> Response:
        return JSONResponse(body, status, headers=headers)

    return answer


@pytest.mark.parametrize(
    "route",
    [
        answers({"detail": "not found"}, 404),
        answers({"detail": "broken"}, 500),
        answers({"detail": "not here"}, 501),
        answers({"detail": "busy"}, 503, **{"Retry-After": "3000"}),
        answers({"message": "done"}),
        answers([]),
        answers({"success": False, "message": "no seed"}),
    ],
    ids=["404", "500", "501", "503", "no word of success", "no object", "no success"],
)
async def test_an_instance_whose_manager_refuses_to_reset_it_is_used_as_it_is(
    route: Route, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(InstanceManager, "reset", route)
    monkeypatch.setattr(episode, "REFUSED_RESET_S", 0.5)
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        with caplog.at_level(logging.WARNING), within(60.0):
            await play(env)
        assert (await env.score()).score == 1.0
        assert (await server.stats())["instances"]["created"] == 1
        await env.close()
    (warning,) = [each for each in caplog.messages if "did not reset it" in each]
    assert warning.startswith("booking: the manager of instance ")


async def test_a_reset_that_is_refused_for_a_moment_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_server() as (server, provider):
        await server.faults({"on": ["reset"], "error_rate": 1.0, "error_status": 500, "for_s": 0.5})
        env = provider.make(TASK)
        await env.reset()
        assert env.measures()["num_retries"] >= 1
        assert "did not reset it" not in caplog.text
        await env.close()


@pytest.mark.parametrize(
    "fault",
    [{"hang_rate": 1.0}, {"lost_reply_rate": 1.0}, {"error_rate": 1.0, "error_status": 504}],
    ids=["no answer", "a lost answer", "a proxy without an answer"],
)
async def test_a_reset_that_may_come_in_the_middle_of_the_episode_is_a_fault(
    fault: dict[str, Any],
) -> None:
    async with on_server(lease=replace(LEASE, operation_s=0.3)) as (server, provider):
        await server.faults({"on": ["reset"], **fault})
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable), within(1.5):
            await env.reset()
        await env.close()


async def test_a_reset_without_an_answer_counts_although_the_next_one_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    responses = iter([JSONResponse({}, 504), *[JSONResponse({}, 404)] * 10])

    async def answer(_part: Any, _request: Request) -> Response:
        return next(responses)

    monkeypatch.setattr(InstanceManager, "reset", answer)
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable, match=r"not_found \(404\)"), within(60.0):
            await env.reset()
        await env.close()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("seconds", "held_s"), [("31", 31.0), ("100000", LONGEST_HOLD_S)])
async def test_a_wait_that_outlasts_the_reset_is_waited_for_before_the_next_one(
    seconds: str, held_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Orchestrator, "create", answers({"detail": "slow down"}, 429, **{"Retry-After": seconds})
    )
    clock = Clock()
    async with on_server() as (server, provider):
        limiter = provider.share("booking").environment
        limiter.clock = clock
        env = provider.make(TASK)
        with pytest.raises(EnvAtCapacity, match=r"rate_limit \(429\): slow down"), within(20.0):
            await env.reset()
        assert limiter._blocked_until == clock.now + held_s
        assert (await server.stats())["requests"].get("create", 0) == 0
        await env.close()


async def test_a_wait_that_fits_into_the_reset_is_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, refusals = Orchestrator.create, [answers({}, 429, **{"Retry-After": "0.2"})]

    async def answer(part: Orchestrator, request: Request) -> Response:
        return await (refusals.pop() if refusals else create)(part, request)

    monkeypatch.setattr(Orchestrator, "create", answer)
    async with on_server() as (_, provider):
        env = provider.make(TASK)
        with within(60.0):
            assert await env.reset()
        await env.close()


async def test_waiting_as_the_platform_asks_is_nobodys_time_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, refusals = Orchestrator.create, [answers({}, 429, **{"Retry-After": "3"})] * 4

    async def answer(part: Orchestrator, request: Request) -> Response:
        return await (refusals.pop() if refusals else create)(part, request)

    monkeypatch.setattr(Orchestrator, "create", answer)
    async with on_server() as (_, provider):
        rollouts = await rolled(
            provider,
            request=replace(REQUEST, n_samples_per_prompt=4),
            reset_timeout_s=2.0,
            infra_retry_allowance_s=0.0,
        )
    assert {r.trajectory.outcome.status for r in rollouts} == {OutcomeStatus.GRADED}
    assert [r.infra_errors for r in rollouts] == [()] * 4
    assert all(r.duration_s < 2.9 <= r.measures["slot_wait_s"] for r in rollouts)


async def test_nobody_gets_a_slot_before_the_wait_is_over() -> None:
    limiter = Limiter(2)
    limiter.hold(0.3)
    limiter.hold(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with limiter.slot():
        assert loop.time() - began >= 0.29
