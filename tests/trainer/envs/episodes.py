"""Two hundred scripted episodes, to be played in several ways that must agree.

    python -m tests.trainer.envs.episodes FILE

plays them in this process and writes JSON: a list of `Episode` as objects. Whoever plays them
otherwise makes the recorded calls and compares texts, error marks and rewards.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.envs.minifleet import MinifleetProvider

NUMBER = 200
FAULTY = ("stops_early", "repeats_last", "wrong_argument", "unknown_tool", "idle")
"""Agents other than the expert; every second task is played by one of them, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode: what was called, what was answered, what it was worth."""

    task_key: str
    env_key: str
    agent: str
    calls: list[dict[str, JsonValue]]
    """`{"name", "arguments"}` in order."""
    texts: list[str]
    """The answer to each call."""
    errors: list[bool]
    """Whether each answer was marked as an error."""
    reward: float


def tasks(number: int = NUMBER) -> list[tuple[Task, str]]:
    """Return tasks of all apps, train and eval in turn, each with the agent that plays it."""
    names = tuple(APPS)
    counts = {key: -(-(number - at) // len(names)) for at, key in enumerate(names)}
    halves = {key: (count + 1) // 2 for key, count in counts.items()}
    rest = {key: counts[key] - halves[key] for key in names}
    train = minifleet_tasks(names, "train", halves, seed=4)
    held_out = minifleet_tasks(names, "eval", rest, seed=4, held_out_share=0.5)
    return [
        (task, "expert" if at % 2 == 0 else FAULTY[at // 2 % len(FAULTY)])
        for at, task in enumerate((*train, *held_out))
    ]


async def record(number: int = NUMBER) -> list[Episode]:
    """Play the episodes in this process."""
    return [await play(task, agent) for task, agent in tasks(number)]


async def play(task: Task, agent: str) -> Episode:
    """Play one episode with the expert's calls as the agent distorts them."""
    env = MinifleetProvider().make(task)
    await env.reset()
    calls: list[ToolCall] = []
    results: list[ToolResult] = []

    async def make(call: ToolCall) -> ToolResult:
        calls.append(call)
        results.append(await env.call(call.name, call.arguments))
        return results[-1]

    for call in await _distorted(task, agent):
        await make(call)
    grade = await env.score()
    assert grade.score is not None
    return Episode(
        task_key=task.key,
        env_key=task.env_key,
        agent=agent,
        calls=[{"name": call.name, "arguments": dict(call.arguments)} for call in calls],
        texts=[result.text for result in results],
        errors=[result.is_error for result in results],
        reward=grade.score,
    )


async def _distorted(task: Task, agent: str) -> Sequence[ToolCall]:
    calls = await _expert_calls(task)
    match agent:
        case "stops_early":
            return calls[:-1]
        case "repeats_last":
            return [*calls, calls[-1]]
        case "wrong_argument":
            return [*calls[:-1], ToolCall(name=calls[-1].name, arguments={"colour": "red"})]
        case "unknown_tool":
            return [ToolCall(name="fly_to_the_moon", arguments={}), *calls]
        case "idle":
            return []
    return calls


async def _expert_calls(task: Task) -> list[ToolCall]:
    env = MinifleetProvider().make(task)
    await env.reset()
    run, calls = expert(task), []
    call = next(run)
    while True:
        calls.append(call)
        try:
            call = run.send(await env.call(call.name, call.arguments))
        except StopIteration:
            return calls


if __name__ == "__main__":
    recorded = asyncio.run(record())
    Path(sys.argv[1]).write_text(json.dumps([asdict(episode) for episode in recorded]))
