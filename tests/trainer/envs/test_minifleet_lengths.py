"""Every template, rolled out as in training by an engine that speaks as the expert does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.hillclimb.minifleet.playing import calls_of
from tests.trainer.fixtures.scripted import ScriptedEngine
from trainer.envs.minifleet import MinifleetProvider
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import render_call
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.request import RolloutRequest
from trainer.rollouts.worker import RolloutParts, RolloutWorker
from trainer.types import Sample, SamplingParams

ASSETS = Path(__file__).parents[3] / "assets"
CHAT = Chat.from_directory(ASSETS / "tiny-qwen3-a")
MAX_PROMPT, MAX_EPISODE = 360, 640
"""Tokens of the longest prompt and of the longest episode of an expert."""


@dataclass(slots=True)
class SpokenEngine(ScriptedEngine):
    """Says the turns of each task in order; a session is named `1/1/train/train/TASK/0/0`."""

    turns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        at = self.said.get(session, 0)
        self.said[session] = at + 1
        task_key = "/".join(session.split("/")[4:8])
        ids = CHAT.encode_turn(self.turns[task_key][at])[: params.max_new_tokens]
        return Sample(
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            stopped=ids[-1] in params.stop_token_ids,
            weight_versions=(0,) * len(ids),
        )


async def spoken(task: Task) -> list[str]:
    """The turns of the expert."""
    calls = [render_call(call.name, call.arguments) for call in await calls_of(task)]
    return [*calls, "<done>"]


@pytest.mark.parametrize("env_key", tuple(APPS))
async def test_an_experts_rollout_of_every_template_passes_within_the_default_limits(
    env_key: str,
) -> None:
    tasks = minifleet_tasks((env_key,), "train", 80, 9)
    tasks += minifleet_tasks((env_key,), "eval", 40, 9, 0.5)
    assert {task.template for task in tasks} == {each.name for each in APPS[env_key].templates}
    parts = RolloutParts(
        engine=SpokenEngine(
            lambda _turn, _params: "", turns={task.key: await spoken(task) for task in tasks}
        ),
        chat=CHAT,
        provider=MinifleetProvider(env_keys=(env_key,)),
        environment=EnvironmentSpec(),
        rollout=RolloutSpec(),
        seed=0,
        attempt=1,
        has_deadlines=False,
    )
    request = RolloutRequest(
        step=1, split="train", decoding="train", n_samples_per_prompt=1, temperatures={env_key: 1.0}
    )
    groups = await Collector(RolloutWorker(parts), max_concurrent_rollouts=64).collect(
        tasks, request
    )
    assert len(groups) == len(tasks)
    for (rollout,) in groups:
        trajectory = rollout.trajectory
        assert trajectory.stop_reason is StopReason.DONE, trajectory.turns
        assert trajectory.reward == 1.0
        assert trajectory.prompt_length <= MAX_PROMPT
        assert len(trajectory.token_ids) <= MAX_EPISODE <= RolloutSpec().max_input_length
