"""What SkyRL's real environment did with scripted turns, and ours with `prompt.style: skyrl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.environment.fleet import FleetSpec, output_limit
from hillclimb.spec.environment.prompt import PromptSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.fixtures.scripted import CHAT, ScriptedEngine, a_request, a_task
from tests.trainer.rollouts.styles.skyrl.cases import (
    CASES,
    PROMPTS,
    TODAY,
    TOOLS,
    Case,
    PromptCase,
    World,
)
from trainer.envs.fleet.verifiers.grades import grade
from trainer.envs.fleet.wire.results import tool_result
from trainer.envs.fleet.wire.schema import tool_spec
from trainer.rollouts.request import Rollout
from trainer.rollouts.styles.base import PromptStyle
from trainer.rollouts.styles.skyrl.rules import SkyrlRules
from trainer.rollouts.styles.skyrl.wording import SkyrlWording
from trainer.rollouts.worker import RolloutParts, RolloutWorker

STYLE = PromptStyle(wording=SkyrlWording(today=date.fromisoformat(TODAY)), rules=SkyrlRules())
RECORDED: dict[str, Any] = json.loads(
    Path(__file__).with_name("recorded.json").read_text(encoding="utf-8")
)
MAX_CHARS = output_limit(FleetSpec(), PromptSpec(style="skyrl"))
LENGTHS = RolloutSpec(max_input_length=40_000, max_generate_length=300, max_sequence_length=40_300)
TASK = replace(a_task(), prompt="Count.")


class WorldEnv:
    """The world behind the code that reads Fleet's answers and grades."""

    def __init__(self, case: Case) -> None:
        self.world = World()
        self._case = case

    async def reset(self) -> tuple[ToolSpec, ...]:
        return tuple(tool_spec(tool) for tool in TOOLS)

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        text, is_error = self.world.answer(name, dict(arguments))
        block: JsonValue = {"type": "text", "text": text}
        return tool_result({"content": [block], "isError": is_error}, MAX_CHARS)

    async def score(self) -> Grade:
        if self._case.verifier is None:
            return Grade(score=None, reason="no_verifier")
        return grade(self._case.answer(self.world), partial_reward=self._case.partial)

    async def close(self) -> None:
        pass


class Provider:
    """Makes the environment of one case."""

    env_keys = ("counting",)

    def __init__(self, env: WorldEnv) -> None:
        self._env = env

    def make(self, task: Task) -> WorldEnv:
        return self._env


async def play(case: Case) -> tuple[Rollout, ScriptedEngine, WorldEnv]:
    env = WorldEnv(case)
    engine = ScriptedEngine(lambda turn, _: case.turns[min(turn, len(case.turns) - 1)])
    parts = RolloutParts(
        engine=engine,
        chat=CHAT,
        provider=Provider(env),
        environment=EnvironmentSpec(
            provider="fleet", max_turns=case.max_turns, max_infra_retries=0
        ),
        rollout=LENGTHS,
        seed=0,
        attempt=1,
        style=STYLE,
    )
    rollout = await RolloutWorker(parts).run_rollout(TASK, 0, a_request())
    return rollout, engine, env


def user_messages(engine: ScriptedEngine) -> list[str]:
    """The messages that the policy read after its turns."""
    text = CHAT.decode(engine.requests[-1][0])
    opening = "<|im_start|>user\n"
    return [part.partition("<|im_end|>")[0] for part in text.split(opening)[2:]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_an_episode_goes_and_is_graded_as_in_skyrl(case: Case) -> None:
    expected = RECORDED["cases"][case.name]
    found, engine, env = await play(case)
    assert found.trajectory.reward == expected["reward"]
    assert [[name, dict(arguments)] for name, arguments in env.world.calls] == expected["calls"]
    if "crash" in expected:
        assert found.trajectory.outcome.reason == "turn_crashed"
        assert found.trajectory.stop_reason is StopReason.ENV_ENDED
        return
    assert user_messages(engine) == expected["observations"]
    assert found.num_turns == expected["turns"]


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case.name)
def test_the_prompt_is_skyrls_letter_by_letter(case: PromptCase) -> None:
    system, user = RECORDED["prompts"][case.name]
    tools = [tool_spec(tool) for tool in TOOLS]
    if "submit_final_answer" in case.prompt:
        tools.append(ToolSpec(name="submit_final_answer", description="Ours.", parameters={}))
    task = replace(TASK, env_key=case.env_key, env_variables=case.env_variables, prompt=case.prompt)
    wording = STYLE.wording
    assert wording.compose_system(task, wording.render_tools(tools)) == system["content"]
    assert task.prompt == user["content"]


def test_every_case_was_recorded_and_nothing_else() -> None:
    assert list(RECORDED["cases"]) == [case.name for case in CASES]
    assert list(RECORDED["prompts"]) == [case.name for case in PROMPTS]
