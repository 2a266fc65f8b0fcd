"""What the provider does when the wire fails: each fault is injected into a real server."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import (
    EnvAtCapacity,
    EnvUnavailable,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.server.problems import FleetProblem, not_found
from hillclimb.minifleet.server.state.instances import InstanceTable
from tests.trainer.envs.fleet.scene import LEASE, TASK, go_on, on_server, play
from trainer.envs.fleet.env import FleetEnv
from trainer.envs.fleet.wire import retry

TOOL = next(tool.spec.name for tool in APPS["booking"].tools if not tool.is_read_only)
QUICK = replace(LEASE, operation_s=0.4)


def rule(on: str, **faults: Any) -> dict[str, Any]:
    return {"on": [on], **faults}


async def test_tools_are_waited_for_and_never_an_empty_list() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("tool_list", empty_tools_first=2))
        env = provider.make(TASK)
        assert len(await env.reset()) == len(APPS["booking"].tools)
        assert env.measures()["num_retries"] == 2
        await env.close()


async def test_an_environment_without_tools_does_not_start() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("tool_list", empty_tools_rate=1.0))
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable, match="no_tools"), within(1.0):
            await env.reset()
        await env.close()


async def test_a_server_that_asks_for_a_call_again_gets_it_again() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("tool_call", error_rate=0.5, retryable=True), seed=3)
        env = provider.make(TASK)
        await play(env)
        assert (await env.score()).score == 1.0
        assert env.measures()["num_retries"] > 0
        await env.close()


async def test_a_call_that_may_have_been_carried_out_is_not_repeated() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        await server.faults(rule("tool_call", lost_reply_rate=1.0, retryable=None))
        with pytest.raises(ToolTransport, match=r"bad_gateway \(502\)"):
            await env.call(TOOL, {})
        assert (await server.stats())["requests"]["tool_call"] == 1
        await env.close()


async def test_a_call_that_only_reads_is_repeated_after_a_lost_answer() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        await server.faults(rule("tool_call", lost_reply_rate=1.0, retryable=None, for_s=0.4))
        found = await env.call("list_bookings", {"guest": "nobody"})
        assert (found.text, found.is_error) == ("no match", False)
        assert env.measures()["num_retries"] >= 1
        await env.close()


async def test_a_call_that_was_surely_not_carried_out_is_repeated() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        # 503 without a word: by its meaning the request was not handled
        await server.faults(
            rule("tool_call", error_rate=1.0, error_status=503, retryable=None, for_s=0.5)
        )
        await env.call(TOOL, {})
        assert env.measures()["num_retries"] >= 2
        await env.close()


async def test_what_the_server_calls_hopeless_is_not_repeated() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("create", error_rate=1.0, error_status=503, retryable=False))
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable, match=r"unavailable \(503\)"):
            await env.reset()
        assert (await server.stats())["requests"]["create"] == 1


async def test_a_call_that_hangs_ends_before_the_callers_deadline_and_says_why() -> None:
    async with on_server(lease=QUICK) as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        await server.faults(rule("tool_call", hang_rate=1.0))
        began = time.monotonic()
        with (
            pytest.raises(ToolTransport, match=r"timeout: .* did not answer in 0\.4 s"),
            within(2.0),
        ):
            await env.call(TOOL, {})
        assert time.monotonic() - began < 1.5
        await server.faults()
        # Another session on the same instance, and the episode goes on.
        await env.call(TOOL, {})
        assert env.measures()["num_reconnects"] == 1
        assert (await server.stats())["instances"]["created"] == 1
        await env.close()


async def test_the_time_left_bounds_a_try() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("create", hang_rate=1.0))
        env = provider.make(TASK)
        began = time.monotonic()
        with pytest.raises(EnvUnavailable, match="did not answer in"), within(0.5):
            await env.reset()
        assert time.monotonic() - began < 1.0


def headers_of(env: FleetEnv) -> list[Any]:
    """The headers of every request of the open session from now on."""
    inner, seen = env._paths._paths[0]._session._transport._inner, []
    send = inner.handle_async_request

    async def spy(request: Any) -> Any:
        seen.append(request.headers)
        return await send(request)

    inner.handle_async_request = spy
    return seen


async def test_a_dropped_session_is_opened_again_without_losing_the_instance() -> None:
    async with on_server(mcp_sessions=True) as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        sent = headers_of(env)
        await env.call(TOOL, {})
        # The server forgets the session, as after a restart of what is in front of it.
        session = {"mcp-session-id": sent[-1]["mcp-session-id"]}
        await server.http.delete(f"{env._instance.root}/mcp", headers=session)
        await go_on(env)
        assert (await env.score()).score == 1.0
        assert env.measures()["num_reconnects"] == 1
        assert (await server.stats())["instances"]["created"] == 1
        await env.close()


async def test_an_instance_that_is_gone_is_not_a_transport_fault() -> None:
    async with on_server(mcp_sessions=True) as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        await server.json("POST", f"/admin/instances/{env._instance.id}/expire")
        began = time.monotonic()
        with pytest.raises(EnvUnavailable, match="the instance has ended"):
            await env.call(TOOL, {})
        assert time.monotonic() - began < 1.0
        await env.close()


async def test_a_repeated_creation_adopts_the_instance_it_made() -> None:
    async with on_server() as (server, provider):
        await server.faults(rule("create", lost_reply_rate=1.0))
        env = provider.make(TASK)
        await env.reset()
        assert (await server.stats())["instances"]["created"] == 1
        await env.close()
        assert (await server.stats())["instances"]["running"] == 0


async def test_a_full_account_is_no_fault() -> None:
    async with on_server(instance_limit=1) as (server, provider):
        first, second = provider.make(TASK), provider.make(TASK)
        await first.reset()
        with pytest.raises(EnvAtCapacity):
            await second.reset()
        assert (await server.stats())["requests"]["create"] == 2
        assert provider.account_limiter.limit == 1.0
        await first.close()
        await second.reset()
        await second.close()


async def test_patience_without_a_deadline_shortens_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        monkeypatch.setattr(retry, "DEFAULT_DEADLINE_S", 0.4)
        await server.faults(rule("verify", error_rate=1.0, error_status=503, for_s=1.0))
        with within(20.0):
            assert (await env.score()).score == 1.0
        await server.faults(rule("verify", error_rate=1.0, error_status=503))
        began = time.monotonic()
        with pytest.raises(VerifierUnavailable):
            await env.score()
        assert time.monotonic() - began < 2.0
        await env.close()


async def test_an_outage_of_the_verifier_is_waited_out() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        await server.faults(rule("verify", error_rate=1.0, error_status=503, for_s=0.6))
        assert (await env.score()).score == 1.0
        await server.faults(rule("verify", error_rate=1.0, error_status=503))
        with pytest.raises(VerifierUnavailable), within(0.8):
            await env.score()
        await env.close()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("crash_rate", "verifier_crashed"),
        ("judge_error_rate", "judge_error"),
        ("no_result_rate", "verifier_none"),
    ],
)
async def test_no_answer_of_a_verifier_but_a_number_is_a_score(fault: str, reason: str) -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        await server.faults(rule("verify", **{fault: 1.0}))
        with within(1.5):
            grade = await env.score()
        assert (grade.score, grade.reason) == (None, reason)
        await env.close()


@pytest.mark.parametrize("purged", [False, True], ids=["still listed", "unknown by now"])
async def test_an_instance_that_ends_before_it_is_graded_is_no_crash_of_the_verifier(
    purged: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        await server.json("POST", f"/admin/instances/{env._instance.id}/expire")
        if purged:
            monkeypatch.setattr(InstanceTable, "find", _unknown)
        with pytest.raises(
            EnvUnavailable, match="the instance ended before it was graded"
        ) as ended:
            await env.score()
        assert not ended.value.is_permanent, "another instance may live longer"
        assert (await server.stats())["requests"].get("verify", 0) == (0 if purged else 1)
        monkeypatch.undo()
        await env.close()


def _unknown(_: InstanceTable, instance_id: str) -> Any:
    raise not_found("Instance", instance_id)


async def test_a_crash_on_an_instance_whose_state_nobody_tells_stays_a_crash() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        await server.faults(rule("verify", crash_rate=1.0), rule("get", error_rate=1.0))
        with within(3.0):
            grade = await env.score()
        assert (grade.score, grade.reason) == (None, "verifier_crashed")
        assert grade.detail == "RuntimeError: the verifier crashed (injected)"
        await env.close()


@pytest.mark.parametrize(
    ("status", "is_permanent"), [(400, True), (401, True), (403, True), (404, False), (503, False)]
)
async def test_a_creation_that_is_refused_for_good_is_permanent(
    status: int,
    is_permanent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise FleetProblem(status, "no")

    async with on_server() as (_, provider):
        monkeypatch.setattr(InstanceTable, "reserve", refuse)
        env = provider.make(TASK)
        with pytest.raises(EnvUnavailable) as refused, within(1.0):
            await env.reset()
        assert refused.value.is_permanent is is_permanent


@pytest.mark.parametrize(("status", "is_permanent"), [(401, True), (422, True), (503, False)])
async def test_a_verifier_that_is_refused_for_good_is_permanent(
    status: int,
    is_permanent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise FleetProblem(status, "no")

    async with on_server() as (_, provider):
        env = provider.make(TASK)
        await env.reset()
        monkeypatch.setattr("hillclimb.minifleet.server.routes.records.resolve", refuse)
        with pytest.raises(VerifierUnavailable) as refused, within(1.0):
            await env.score()
        assert refused.value.is_permanent is is_permanent
        await env.close()


async def test_a_judge_that_comes_back_is_asked_again() -> None:
    async with on_server() as (server, provider):
        env = provider.make(TASK)
        await play(env)
        await server.faults(rule("verify", judge_error_rate=1.0, for_s=0.5))
        assert (await env.score()).score == 1.0
        await env.close()


@pytest.mark.parametrize(("partial_reward", "score"), [(False, 0.0), (True, 0.5)])
async def test_partial_reward_is_given_only_where_it_is_asked_for(
    partial_reward: bool, score: float
) -> None:
    async with on_server(partial_reward=partial_reward) as (_, provider):
        env = provider.make(TASK)
        await play(env)
        # Booked twice: the change that was asked for, and one that was not.
        await go_on(env)
        assert (await env.score()).score == score
        await env.close()
