"""Episodes against a real OpenEnv server whose environment has an action of its own."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from hillclimb.environment.base import Grade
from hillclimb.environment.errors import EnvUnavailable, ToolTransport, VerifierUnavailable
from hillclimb.environment.task import Task
from hillclimb.process.network.addresses import NO_HOSTS, OWN_MACHINE_HOSTS, HostRefused
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.openenv import OpenEnvServer
from tests.trainer.envs.odd_server import Asked, Said, odd_server
from tests.trainer.envs.openenv.servers import Served, countdown_server
from tests.trainer.fixtures.scripted import ScriptedEngine, a_collector, a_request
from trainer.envs.openenv.env import OpenEnvEpisode
from trainer.envs.openenv.provider import OpenEnvProvider, check_servers
from trainer.envs.openenv.session import OpenEnvSession, SessionRefused
from trainer.errors import EnvironmentOutage, SpecError

WORD = {"RUN_SECRET_WORD": "Bearer countdown"}


def a_provider(served: Served, **settings: Any) -> OpenEnvProvider:
    server = OpenEnvServer.model_validate(
        {"url": served.url, "headers": {"Authorization": "RUN_SECRET_WORD"}, **settings}
    )
    return OpenEnvProvider({"countdown": server}, WORD)


def a_task(**arguments: Any) -> Task:
    return Task(
        key="countdown/train/7",
        env_key="countdown",
        prompt="",
        template="countdown",
        difficulty=1,
        payload={"metadata": {"reset": {"seed": 7, **arguments}}},
    )


@asynccontextmanager
async def an_episode(
    served: Served, settings: dict[str, Any] | None = None, **arguments: Any
) -> AsyncIterator[OpenEnvEpisode]:
    episode = a_provider(served, **(settings or {})).make(a_task(**arguments))
    try:
        await episode.reset()
        yield episode
    finally:
        await episode.close()


async def played(
    served: Served, takes: list[int], settings: dict[str, Any] | None = None, **arguments: Any
) -> Grade:
    async with an_episode(served, settings, **arguments) as episode:
        for take in takes:
            await episode.call("act", {"take": take})
        return await episode.score()


async def test_an_action_becomes_one_tool_with_its_schema(countdown: Served) -> None:
    episode = a_provider(countdown).make(a_task())
    (tool,) = await episode.reset()
    await episode.close()
    assert (tool.name, tool.description) == ("act", "Take some away.")
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "take": {"description": "How many.", "maximum": 3, "minimum": 1, "type": "integer"},
            "voice": {"default": "quiet", "enum": ["loud", "quiet"], "type": "string"},
        },
        "required": ["take"],
    }


async def test_the_prompt_is_what_the_reset_says(countdown: Served) -> None:
    async with an_episode(countdown, {"reset": {"start": 5}}) as episode:
        assert episode.prompt == '{"left": 5, "hint": "seed 7"}'
    async with an_episode(countdown, {"text_field": "hint", "reset": {"start": 5}}) as episode:
        assert episode.prompt == "seed 7"


async def test_a_step_answers_and_the_last_one_ends_the_episode(countdown: Served) -> None:
    async with an_episode(countdown) as episode:
        first = await episode.call("act", {"take": 1})
        assert (first.text, first.ends_episode) == ('{"left": 2}', False)
        assert (await episode.call("act", {"take": 2})).ends_episode
        assert await episode.score() == Grade(score=1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"take": 9}, "take: Input should be less than or equal to 3"),
        ({}, "take: Field required"),
        ({"take": 1, "wildly": True}, "wildly: Extra inputs are not permitted"),
    ],
)
async def test_an_invalid_action_is_told_to_the_model_and_changes_nothing(
    countdown: Served, arguments: dict[str, Any], said: str
) -> None:
    async with an_episode(countdown) as episode:
        told = await episode.call("act", arguments)
        assert (told.text, told.is_error) == (said, True)
        assert (await episode.call("jump", {})).text == "no tool jump, use one of act"
        assert (await episode.call("act", {"take": 1})).text == '{"left": 2}'


@pytest.mark.parametrize(
    ("takes", "how", "expected"),
    [
        ([3], {}, Grade(score=1.0)),
        ([2, 2], {}, Grade(score=0.0)),
        ([1, 1, 1], {"rewards": [0.0, 0.25, 0.5, 0.75]}, Grade(score=0.75)),
        ([3], {"wrong": "no reward"},
         Grade(score=None, reason="the server ended the episode without a reward")),
        ([3], {"wrong": "no reward", "state": 0.5}, Grade(score=0.5)),
        ([1], {}, Grade(score=0.0, reason="the model stopped before the server gave a reward")),
        ([], {"rewards": [0.5]}, Grade(score=0.5)),
    ],
)  # fmt: skip
async def test_the_last_reward_is_the_grade_as_it_is(
    countdown: Served, takes: list[int], how: dict[str, Any], expected: Grade
) -> None:
    assert await played(countdown, takes, **how) == expected


async def test_rewards_are_added_up_where_the_spec_says_so(countdown: Served) -> None:
    rewards = [0.1] * 11
    added = {"reward": "sum", "reset": {"start": 9}}
    assert await played(countdown, [1] * 9, added, rewards=rewards) == Grade(score=1.0)
    with pytest.raises(SpecError, match=r"the sum of an episode's rewards was 1\.1"):
        await played(countdown, [1] * 9 + [1], added, rewards=rewards)


@pytest.mark.parametrize("wrong", ["bug", "nonsense"])
async def test_a_step_that_fails_in_the_server_is_no_fault_of_the_model(
    countdown: Served, wrong: str
) -> None:
    async with an_episode(countdown, wrong=wrong) as episode:
        with pytest.raises(ToolTransport, match="the server refused"):
            await episode.call("act", {"take": 1})


@pytest.mark.parametrize(
    ("wrong", "said"), [("start", "the backend is down"), ("over", "over when it began")]
)
async def test_a_reset_that_fails_in_the_server_is_an_infra_error(
    countdown: Served, wrong: str, said: str
) -> None:
    episode = a_provider(countdown).make(a_task(wrong=wrong))
    with pytest.raises(EnvUnavailable, match=said):
        await episode.reset()
    await episode.close()


async def test_who_does_not_know_the_word_is_an_infra_error(countdown: Served) -> None:
    provider = OpenEnvProvider({"countdown": OpenEnvServer(url=countdown.url)}, {})
    with pytest.raises(EnvUnavailable, match="401"):
        await provider.make(a_task()).reset()


def test_a_header_whose_variable_is_not_set_is_refused_at_once() -> None:
    server = OpenEnvServer(url="http://127.0.0.1:1", headers={"Authorization": "RUN_SECRET_X"})
    with pytest.raises(SpecError, match="the variable RUN_SECRET_X, which is not set"):
        OpenEnvProvider({"countdown": server}, {})


@pytest.mark.parametrize("value", ["hunter2\nsecret", "hunter2 \u00e9"])
def test_a_secret_that_no_header_carries_is_refused_and_not_told(value: str) -> None:
    server = OpenEnvServer(url="http://127.0.0.1:1", headers={"Authorization": "RUN_SECRET_X"})
    with pytest.raises(SpecError, match="no header can carry") as refused:
        OpenEnvProvider({"countdown": server}, {"RUN_SECRET_X": value})
    assert "hunter2" not in str(refused.value)


async def test_a_secret_from_a_file_ends_with_a_line_and_is_used_without(countdown: Served) -> None:
    guarded = OpenEnvServer(url=countdown.url, headers={"Authorization": "RUN_SECRET_WORD"})
    await check_servers({"countdown": guarded}, {"RUN_SECRET_WORD": "Bearer countdown\n"})


async def test_a_server_that_repeats_a_secret_is_quoted_without_it() -> None:
    async def repeat(connection: ServerConnection) -> None:
        key = connection.request.headers["X-API-Key"] if connection.request else ""
        async for _ in connection:
            error = {"code": "EXECUTION_ERROR", "message": f"{key} may not"}
            await connection.send(json.dumps({"type": "error", "data": error}))

    async with serve(repeat, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        spec = OpenEnvServer(url=f"ws://127.0.0.1:{port}", headers={"X-API-Key": "RUN_SECRET_X"})
        session = OpenEnvSession(spec, {"X-API-Key": "hunter2secret"}, OWN_MACHINE_HOSTS)
        with pytest.raises(SessionRefused, match=r"\[hidden\] may not"):
            await session.reset()
        await session.close()


async def test_a_server_that_is_not_there_is_an_infra_error() -> None:
    provider = OpenEnvProvider({"countdown": OpenEnvServer(url="ws://127.0.0.1:1/env")}, {})
    with pytest.raises(EnvUnavailable, match="gave no schema"):
        await provider.make(a_task()).reset()


async def test_servers_are_looked_for_before_a_run(countdown: Served) -> None:
    guarded = OpenEnvServer(url=countdown.url, headers={"Authorization": "RUN_SECRET_WORD"})
    await check_servers({"countdown": guarded}, WORD)
    for server, fault, said in (
        (OpenEnvServer(url=countdown.url), SpecError, "answers 401 to GET /schema"),
        (OpenEnvServer(url=f"{countdown.url}/other", headers=guarded.headers), SpecError, "404"),
        (OpenEnvServer(url="http://127.0.0.1:1"), EnvironmentOutage, "start the server"),
    ):
        with pytest.raises(fault, match=said):
            await check_servers({"countdown": server}, WORD)


async def test_a_server_that_the_operator_does_not_open_gets_no_connection() -> None:
    """Neither before the run nor, where a name has moved since, from an episode."""
    closed = {"HILLCLIMB_RUN_PRIVATE_HOSTS": "none"}
    async with odd_server(Said()) as (url, asked):
        server = OpenEnvServer(url=url)
        with pytest.raises(SpecError, match=r"no public address.*HILLCLIMB_RUN_PRIVATE_HOSTS"):
            await check_servers({"countdown": server}, closed)
        with pytest.raises(EnvUnavailable, match="has an address that is not public"):
            await OpenEnvProvider({"countdown": server}, closed).make(a_task()).reset()
        with pytest.raises(HostRefused):
            await OpenEnvSession(server, {}, NO_HOSTS).connect()
        assert asked == []


async def test_a_message_larger_than_allowed_is_an_infra_error(countdown: Served) -> None:
    async with an_episode(countdown, padding=2**21) as episode:
        assert len(episode.prompt) > 2**21
    small = a_provider(countdown, max_message_mib=1).make(a_task(padding=2**21))
    with pytest.raises(EnvUnavailable, match="did not answer"):
        await small.reset()
    await small.close()


async def test_the_model_sees_a_long_answer_cut(countdown: Served) -> None:
    async with an_episode(countdown, {"max_output_chars": 100}, talk=5000) as episode:
        answer = await episode.call("act", {"take": 1})
        assert answer.text.startswith('{"left": 2, "hint": "yyy')
        assert answer.text[100:].startswith("\n[the answer has 5")
        assert answer.text.endswith("are cut]")


async def test_a_schema_larger_than_allowed_is_no_schema() -> None:
    async with odd_server(Said(body=itertools.repeat(b" " * 65536))) as (url, _):
        server = OpenEnvServer(url=url, max_message_mib=1)
        with pytest.raises(SpecError, match=r"a schema larger than max_message_mib \(1 MiB\)"):
            await check_servers({"countdown": server}, {})


async def test_a_redirect_takes_no_secret_to_another_server() -> None:
    async with odd_server(Said(status=404)) as (elsewhere, asked_there):

        def answer(asked: Asked) -> Said:
            if asked.path == "/schema":
                return Said(body=b'{"action": {"title": "Move", "properties": {"x": {}}}}')
            there = elsewhere.replace("http", "ws")
            return Said(status=302, headers={"location": f"{there}/ws"})

        async with odd_server(answer) as (url, asked):
            server = OpenEnvServer.model_validate(
                {"url": url, "headers": {"X-API-Key": "RUN_SECRET_WORD"}}
            )
            episode = OpenEnvProvider({"countdown": server}, WORD).make(a_task())
            with pytest.raises(EnvUnavailable, match="302"):
                await episode.reset()
            await episode.close()
    assert [each.headers["x-api-key"] for each in asked] == ["Bearer countdown"] * 2
    assert asked_there == []


async def test_a_full_server_is_asked_again_until_a_session_is_free(countdown: Served) -> None:
    provider = a_provider(countdown)
    first, second, third = (provider.make(a_task()) for _ in range(3))
    await first.reset()
    await second.reset()
    waiting = asyncio.create_task(third.reset())
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    await first.close()
    (tool,) = await asyncio.wait_for(waiting, 5.0)
    assert tool.name == "act"
    await second.close()
    await third.close()


async def test_rollouts_cut_off_leave_no_session_and_no_task(countdown: Served) -> None:
    provider = a_provider(countdown)
    for _ in range(2):
        episodes = [provider.make(a_task(wrong="hang")) for _ in range(2)]
        for episode in episodes:
            await episode.reset()
        calls = [asyncio.create_task(each.call("act", {"take": 1})) for each in episodes]
        await asyncio.wait(calls, timeout=0.05)
        for call, episode in zip(calls, episodes, strict=True):
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            with pytest.raises(ToolTransport, match="response to an earlier message"):
                await episode.call("act", {"take": 1})
            await episode.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await played(countdown, [3]) == Grade(score=1.0)


REQUEST = replace(a_request(), temperatures={"countdown": 1.0})
ACT = '<tool_call>{"name": "act", "arguments": {"take": %d}}</tool_call>'


async def test_a_rollout_gets_its_prompt_from_the_server_and_keeps_it(countdown: Served) -> None:
    engine = ScriptedEngine(lambda _, __: ACT % 3)
    collector = a_collector(engine, a_provider(countdown))
    ((found,),) = await collector.collect([a_task()], REQUEST)
    assert found.trajectory.stop_reason is StopReason.ENV_ENDED
    assert found.trajectory.reward == 1.0
    assert found.trajectory.task.prompt == '{"left": 3, "hint": "seed 7"}'


async def test_a_task_with_an_instruction_shows_the_board_after_it(countdown: Served) -> None:
    engine = ScriptedEngine(lambda _, __: ACT % 3)
    collector = a_collector(engine, a_provider(countdown))
    task = replace(a_task(), prompt="Take all that is left.")
    ((found,),) = await collector.collect([task], REQUEST)
    board = '{"left": 3, "hint": "seed 7"}'
    assert found.trajectory.task.prompt == f"Take all that is left.\n\n{board}"


async def test_a_call_that_hangs_is_an_infra_error_within_its_deadline(countdown: Served) -> None:
    engine = ScriptedEngine(lambda _, __: ACT % 3)
    environment = EnvironmentSpec(
        call_timeout_s=0.2, reset_timeout_s=10.0, max_infra_retries=0, trajectory_timeout_s=20.0
    )
    collector = a_collector(engine, a_provider(countdown), environment=environment)
    ((found,),) = await collector.collect([a_task(wrong="hang")], REQUEST)
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.infra_errors == ("tool_transport",)


async def test_a_server_that_dies_leaves_no_zero_and_its_rollouts_go_on_when_it_is_back() -> None:
    served = countdown_server()
    again: list[Served] = []

    def policy(turn: int, _: object) -> str:
        if turn == 1 and not again:
            served.kill()
            again.append(countdown_server(served.port))
        return ACT % (1 if turn == 0 else 2)

    try:
        async with an_episode(served, wrong="no reward") as ungraded:
            await ungraded.call("act", {"take": 3})
            collector = a_collector(ScriptedEngine(policy), a_provider(served))
            ((found,),) = await collector.collect([a_task()], REQUEST)
            with pytest.raises(VerifierUnavailable, match="did not answer"):
                await ungraded.score()
        assert found.infra_errors == ("tool_transport",)
        assert found.trajectory.reward == 1.0
    finally:
        for each in (served, *again):
            each.stop()


def test_the_client_brings_no_server_into_the_trainer() -> None:
    heavy = ("fastapi", "starlette", "fastmcp", "gradio", "mcp", "openai", "openenv.core")
    code = (
        "import sys, trainer.envs.openenv.provider;"
        f" print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"
