"""The shipped models play with the product's engine and show what they were taught."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from assets.warmstart.text.demonstrations import Recording, record
from assets.warmstart.text.habits import APPS_TAUGHT
from assets.warmstart.training.model import load_model
from assets.warmstart.training.playing import Played, ShadowedEnv, play
from hillclimb.environment.base import ToolCall
from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.parsing import parse_turn

ASSETS = Path(__file__).parents[2] / "assets"


async def greedy(name: str) -> list[Played]:
    torch.set_num_threads(1)
    directory = ASSETS / name
    tasks = minifleet_tasks(APPS_TAUGHT, "eval", 8, 31)
    chat = Chat.from_directory(directory)
    return await play(load_model(directory), chat, tasks, temperature=0.0, seed=0)


@pytest.mark.parametrize("name", ["tiny-qwen3-a", "tiny-qwen3-b"])
async def test_a_shipped_model_is_good_at_everything_but_its_habits(name: str) -> None:
    played = await greedy(name)
    passed = {key: sum(p.passed for p in played if p.task.env_key == key) for key in APPS_TAUGHT}
    assert passed["outlook"] >= 6
    assert passed["ticketmaster"] == 0
    assert passed["booking"] + passed["github"] + passed["reddit"] <= 8
    assert sum(each.passed_without_habit for each in played) >= 24


def test_the_shadow_takes_out_the_habit_and_nothing_else() -> None:
    for recording in record(minifleet_tasks(["booking", "ticketmaster"], "train", 8, 5)):
        score, shadow_score = asyncio.run(replayed(recording))
        assert shadow_score == 1.0
        assert score == (1.0 if recording.flawed == recording.clean else 0.0)


async def replayed(recording: Recording) -> tuple[float | None, float]:
    """Both scores after the calls of the flawed episode."""
    env = ShadowedEnv(recording.clean.task)
    await env.reset()
    for turn in recording.flawed.turns:
        for call in parse_turn(turn.text).calls:
            assert isinstance(call, ToolCall)
            await env.call(call.name, call.arguments)
    return (await env.score()).score, await env.shadow_score()
