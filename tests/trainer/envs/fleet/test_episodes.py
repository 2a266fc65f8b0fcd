"""Whole episodes on a real server of Fleet's contract."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.environment.deadline import within
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.export import verifier_source
from tests.trainer.envs.fleet.scene import TASK, on_server, play, with_payload
from trainer.envs.fleet.env import SUBMIT
from trainer.errors import SpecError


@pytest.mark.parametrize("mcp_sessions", [False, True])
async def test_an_expert_is_graded_1_over_one_session(mcp_sessions: bool) -> None:
    async with on_server(mcp_sessions=mcp_sessions) as (server, provider):
        env = provider.make(TASK)
        tools, results = await play(env)
        grade = await env.score()
        stats = await server.stats()
        await env.close()
        assert grade.score == 1.0
        assert tools == tuple(tool.spec for tool in APPS["booking"].tools)
        # initialize, initialized and the list at each of two paths, and then one request per call
        assert stats["requests"]["mcp_http"] == 2 * 3 + len(results)
        assert env.measures()["num_mcp_requests"] == 2 * 3 + len(results)


async def test_answers_are_those_of_the_environment_in_this_process() -> None:
    async with on_server() as (_, provider):
        env, local = provider.make(TASK), MinifleetEnv(APPS["booking"], TASK)
        await env.reset()
        await local.reset()
        for name, arguments in (
            ("no_such_tool", {}),
            (APPS["booking"].tools[0].spec.name, {"nonsense": 1}),
            (APPS["booking"].tools[0].spec.name, {}),
        ):
            assert await env.call(name, arguments) == await local.call(name, arguments)
        assert (await env.score()).score == (await local.score()).score == 0.0
        await env.close()


async def test_a_datasets_verifier_travels_as_bytes_and_only_once() -> None:
    task = with_payload(verifier_code=verifier_source(TASK))
    async with on_server() as (server, provider):
        grades = []
        for _ in range(2):
            env = provider.make(task)
            await play(env)
            grades.append(await env.score())
            await env.close()
        assert [grade.score for grade in grades] == [1.0, 1.0]
        stats = await server.stats()
        assert "tasks" not in stats["requests"]
        assert stats["instances"] == {"created": 2, "running": 0, "ended": {"deleted": 2}}


async def test_a_verifier_that_the_platform_does_not_run_gives_no_grade() -> None:
    async with on_server() as (_, provider):
        env = provider.make(with_payload(verifier_code="def verify(env):\n    return 1\n"))
        await env.reset()
        with within(1.5):
            grade = await env.score()
        await env.close()
        assert (grade.score, grade.reason) == (None, "verifier_crashed")
        assert grade.detail == (
            "VerifierNotRegistered: the verifier's source is not one that minifleet exported, and"
            " this server runs no code that a client sends"
        )


async def test_a_task_without_a_verifier_gets_no_grade() -> None:
    async with on_server() as (_, provider):
        unknown = replace(with_payload(verifier_code=None), key="nobody-knows-it")
        env = provider.make(unknown)
        await env.reset()
        assert (await env.score()).reason == "no_verifier"
        await env.close()


async def test_a_final_answer_ends_the_episode_where_the_prompt_asks_for_one() -> None:
    asks = replace(TASK, prompt=f"{TASK.prompt} Then call {SUBMIT}.")
    async with on_server() as (_, provider):
        env, plain = provider.make(asks), provider.make(TASK)
        assert [tool.name for tool in await env.reset()][-1] == SUBMIT
        assert SUBMIT not in [tool.name for tool in await plain.reset()]
        assert (await env.call(SUBMIT, {})).is_error
        done = await env.call(SUBMIT, {"answer": "42"})
        assert (done.ends_episode, done.is_error) == (True, False)
        assert (await plain.call(SUBMIT, {"answer": "42"})).is_error
        await env.close()
        await plain.close()


@pytest.mark.parametrize("modality", ["computer_use", "browser_use"])
async def test_tasks_that_need_a_screen_are_refused(modality: str) -> None:
    async with on_server() as (server, provider):
        env = provider.make(with_payload(task_modality=modality, verifier_code="x"))
        with pytest.raises(SpecError, match=f"modality {modality}.*use tasks of modality"):
            await env.reset()
        assert (await server.stats())["instances"]["created"] == 0
