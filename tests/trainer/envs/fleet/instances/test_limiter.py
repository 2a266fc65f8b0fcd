"""The limit of instances: additive increase, multiplicative decrease, never beyond the bound."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hillclimb.environment.errors import EnvAtCapacity
from tests.trainer.envs.fleet.scene import LEASE, TASK, on_server
from trainer.envs.fleet.instances.limiter import COOLDOWN_S, Limiter, Share
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.faults import INSTANCE_LIMIT, WireFault, of_timeout


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


FULL = WireFault(kind=INSTANCE_LIMIT, message="full", is_transient=False, may_be_done=False)
LATE = of_timeout("a call", 1.0)


def test_a_timeout_takes_a_quarter_once_per_cooldown_and_a_round_of_answers_gives_one() -> None:
    clock = Clock()
    limiter = Limiter(16, clock=clock)
    for _ in range(5):
        limiter.on_overload(LATE)
    assert limiter.limit == 12.0
    limiter.on_success()
    assert limiter.limit == 12.0, "not within the cooldown"
    clock.now += COOLDOWN_S
    for _ in range(12):
        limiter.on_success()
    assert limiter.limit == pytest.approx(13.0, abs=0.1)
    for _ in range(1000):
        limiter.on_success()
    assert limiter.limit == 16.0


def test_many_timeouts_leave_one() -> None:
    clock = Clock()
    limiter = Limiter(16, clock=clock)
    for _ in range(50):
        limiter.on_overload(LATE)
        clock.now += COOLDOWN_S
    assert limiter.limit == 1.0


@pytest.mark.parametrize(
    ("in_use", "num_owned", "detail", "limit"),
    [
        # The platform says nothing more: what is held.
        (16, 5, {}, 5.0),
        # All that run are ours, some of them not answered yet.
        (16, 5, {"running_instances": 8, "instance_limit": 8}, 8.0),
        # Three are others'.
        (6, 5, {"running_instances": 8, "instance_limit": 8}, 5.0),
        (1, 0, {"running_instances": 8, "instance_limit": 8}, 1.0),
    ],
)
def test_a_full_account_leaves_us_what_others_do_not_hold(
    in_use: int, num_owned: int, detail: dict[str, Any], limit: float
) -> None:
    limiter = Limiter(16, clock=Clock())
    limiter.in_use, limiter.num_owned = in_use, num_owned
    fault = WireFault(
        kind=INSTANCE_LIMIT, message="", is_transient=False, may_be_done=False, detail=detail
    )
    limiter.on_overload(fault)
    assert (limiter.limit, limiter.num_limits) == (limit, 1)


def test_an_environment_shrinks_by_its_own_timeouts_and_all_share_the_account() -> None:
    account = Limiter(32, clock=Clock())
    one, other = (Share(Limiter(16, clock=Clock()), account) for _ in range(2))
    one.on_overload(LATE)
    assert (one.limit, other.limit) == (12, 16)
    account.num_owned = 3
    one.on_overload(FULL)
    assert (one.limit, other.limit) == (3, 3)


async def test_who_waits_gets_a_place_in_order_and_a_cancelled_one_loses_none() -> None:
    limiter = Limiter(1)
    order: list[str] = []

    async def hold(name: str) -> None:
        async with limiter.slot():
            order.append(name)
            await asyncio.sleep(0)

    async with limiter.slot():
        waiting = [asyncio.create_task(hold(name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["b", "c"]
    assert limiter.in_use == 0


async def test_a_waiter_that_is_cancelled_in_the_pause_passes_its_turn_on() -> None:
    limiter = Limiter(1)

    async def hold() -> None:
        async with limiter.slot():
            pass

    async with limiter.slot():
        woken, next_in_line = (asyncio.create_task(hold()) for _ in range(2))
        await asyncio.sleep(0)
        limiter.on_overload(FULL)
    # The first has its turn, and waits until the account may have room again.
    await asyncio.sleep(0)
    woken.cancel()
    async with asyncio.timeout(2.0):
        await next_in_line
    assert limiter.in_use == 0


async def episode(provider: FleetProvider) -> int:
    """One episode that is begun again while the account is full; how often it was."""
    refused = 0
    while True:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(provider.slot(TASK))
            env = provider.make(TASK)
            stack.push_async_callback(env.close)
            try:
                await env.reset()
            except EnvAtCapacity:
                refused += 1
                continue
            return refused


async def test_the_accounts_limit_is_found_and_kept_to() -> None:
    async with on_server(max_instances=32, lease=LEASE, instance_limit=4) as (server, provider):
        refused = await asyncio.gather(*(episode(provider) for _ in range(40)))
        stats = await server.stats()
    assert stats["instances"]["created"] == 40
    assert stats["instances"]["running"] == 0
    # One round of refusals, then at most a few probes: not one for each that waits.
    assert sum(refused) <= 32 + 8
