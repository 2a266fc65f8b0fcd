"""Every template fits the tiny models and the default lengths of a rollout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.envs.minifleet.playing import started
from trainer.contract.sections import EnvironmentSpec, RolloutSpec
from trainer.data.tasks import minifleet_tasks
from trainer.envs.minifleet.catalog import APPS
from trainer.envs.minifleet.experts import expert
from trainer.rollouts.chat import Chat
from trainer.rollouts.prompts import render_call
from trainer.types import Task

ASSETS = Path(__file__).parents[4] / "assets"
LENGTHS = RolloutSpec()
MAX_PROMPT, MAX_EPISODE = 360, 640
"""Tokens of the longest prompt and the longest episode of an expert: half of what there is."""


async def lengths(chat: Chat, task: Task) -> tuple[int, int, int, int]:
    """Tokens of the prompt, of what the last turn reads, of the longest turn; number of turns."""
    env, plan = await started(task), expert(task)
    tools = tuple(tool.spec for tool in APPS[task.env_key].tools)
    prompt = total = len(chat.encode_prompt(task, tools))
    call, longest, turns = next(plan), 0, 1
    while True:
        result = await env.call(call.name, call.arguments)
        turn = len(chat.encode_turn(render_call(call.name, call.arguments)))
        total += turn + len(chat.encode_observation(result.text, is_error=result.is_error))
        longest, turns = max(longest, turn), turns + 1
        try:
            call = plan.send(result)
        except StopIteration:
            return prompt, total, longest, turns


@pytest.mark.parametrize("env_key", tuple(APPS))
async def test_an_experts_episode_of_every_template_fits_the_default_lengths(env_key: str) -> None:
    chat = Chat.from_directory(ASSETS / "tiny-qwen3-a")
    done = len(chat.encode_turn("<done>"))
    tasks = minifleet_tasks((env_key,), "train", 100, 9)
    tasks += minifleet_tasks((env_key,), "eval", 100, 9, 0.5)
    assert {task.template for task in tasks} == {each.name for each in APPS[env_key].templates}
    for task in tasks:
        prompt, total, longest, turns = await lengths(chat, task)
        assert prompt <= MAX_PROMPT, task.key
        assert total + done <= MAX_EPISODE, task.key
        assert turns <= EnvironmentSpec().max_turns
        assert longest <= LENGTHS.max_generate_length
    assert LENGTHS.max_input_length >= MAX_EPISODE
