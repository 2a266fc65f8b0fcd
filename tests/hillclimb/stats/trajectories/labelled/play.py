"""Plays one script: task, platform and agent, from its name alone."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS, Split, make_task
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.ambiguity import Ambiguous
from tests.hillclimb.stats.trajectories.labelled.agent.labels import labels
from tests.hillclimb.stats.trajectories.labelled.agent.plan import Plan, expert_calls
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.conversation import LabelledConversation
from tests.hillclimb.stats.trajectories.labelled.envs import dialects
from tests.hillclimb.stats.trajectories.labelled.envs.dialect import Dialect
from tests.hillclimb.stats.trajectories.labelled.envs.platform import Platform
from tests.hillclimb.stats.trajectories.labelled.material.titles import POOLS, with_title
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

_IMPORTED_SHARE = 0.35
_MAX_ATTEMPTS = 20


async def play(script: Script, number: int) -> LabelledConversation:
    """Play a script for the `number`-th time: equal arguments give equal conversations."""
    apps = script.setting.apps
    first = random.Random(f"{script.family}/{script.kind}").randrange(len(apps))
    env_key = apps[(first + number) % len(apps)]
    name = f"{script.family}/{script.kind}/{env_key}/{number}"
    for attempt in itertools.count():
        try:
            played, patterns = await _play_once(script, env_key, random.Random(f"{name}#{attempt}"))
        except Ambiguous:
            assert attempt < _MAX_ATTEMPTS, name
        else:
            break
    near_miss_of = script.family if script.is_near_miss else None
    return LabelledConversation(
        name=name, conversation=played, patterns=patterns, near_miss_of=near_miss_of
    )


async def _play_once(
    script: Script, env_key: str, rng: random.Random
) -> tuple[Conversation, frozenset[str]]:
    agent = await _agent(script.setting, env_key, rng)
    await script.play(agent)
    played = agent.conversation()
    return played, labels(played, agent.facts)


async def _agent(setting: Setting, env_key: str, rng: random.Random) -> Agent:
    task, title = await _draw_task(setting, env_key, rng)
    is_imported = setting.source == "imported" or (
        setting.source == "any" and rng.random() < _IMPORTED_SHARE
    )
    dialect = _dialect(setting, rng, is_imported=is_imported)
    platform = Platform(MinifleetEnv(APPS[env_key], task), dialect, grades=setting.grades)
    tools = await platform.reset()
    start = Conversation(
        task_key=task.key,
        env_key=env_key,
        prompt=_system(task, tools) + task.prompt if is_imported else task.prompt,
        env_variables={} if is_imported else task.env_variables,
        turns=(),
        stop_reason=StopReason.NOT_STARTED,
    )
    thinks = rng.choice((0.0, 0.4, 0.8)) if setting.thinks is None else setting.thinks
    plan = Plan(task, await expert_calls(task))
    return Agent(
        task,
        plan,
        start,
        platform,
        dialect,
        title=title,
        counts_tokens=not is_imported,
        rng=rng,
        thinks=thinks,
    )


async def _draw_task(setting: Setting, env_key: str, rng: random.Random) -> tuple[Task, str]:
    app = APPS[env_key]
    templates = [
        each for each in app.templates if not setting.templates or each.name in setting.templates
    ]
    while True:
        split: Split = rng.choice(("train", "eval"))
        task = make_task(app, rng.choice(templates), split, rng.randrange(1_000_000))
        if setting.min_calls <= len(await expert_calls(task)) <= setting.max_calls:
            break
    if setting.titles is None:
        return task, ""
    title = rng.choice(POOLS[setting.titles])
    return with_title(task, title, rng), title


def _dialect(setting: Setting, rng: random.Random, *, is_imported: bool) -> Dialect:
    match setting.dialect:
        case "naming":
            return dialects.naming(rng, marks_errors=not is_imported)
        case "null_errors":
            success, failure = rng.choice(dialects.NULL_ERRORS), rng.choice(dialects.FAILURES)
            return Dialect(success=success, failure=failure, marks_errors=False)
        case "plain" if not is_imported:
            return dialects.PLAIN
        case "any" if not is_imported:
            return dialects.any_dialect(rng)
    return dialects.imported(rng)


def _system(task: Task, tools: Sequence[ToolSpec]) -> str:
    """Return a system message as SkyRL's dumps have it before the task."""
    lines = [
        "You are a tool-use agent. Every turn reply with a tool call or <done>.",
        *(f"{name}: {value}" for name, value in sorted(task.env_variables.items())),
        "# Tools",
        "<tools>",
        *(json.dumps({"name": tool.name, "parameters": dict(tool.parameters)}) for tool in tools),
        "</tools>",
    ]
    return "\n".join(lines) + "\n\n"
