"""Plays scripted agents on miniature apps: the expert, and agents with one fault each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS, make_task
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.framework.world import World

Rewrite = Callable[[ToolCall], Sequence[ToolCall]]
"""What a faulty agent calls where the expert makes one call; the expert sees the last answer."""


def as_it_is(call: ToolCall) -> Sequence[ToolCall]:
    return (call,)


async def play(
    task: Task, rewrite: Rewrite = as_it_is, after: Sequence[ToolCall] = ()
) -> tuple[Grade, list[ToolResult]]:
    """Play the expert's calls as rewritten, then `after`; an empty rewrite ends the episode."""
    env = await started(task)
    results: list[ToolResult] = []
    run = expert(task)
    wanted: ToolCall | None = next(run)
    while wanted is not None:
        calls = rewrite(wanted)
        if not calls:
            break
        results += [await env.call(call.name, call.arguments) for call in calls]
        try:
            wanted = run.send(results[-1])
        except StopIteration:
            wanted = None
    results += [await env.call(call.name, call.arguments) for call in after]
    return await env.score(), results


async def play_last_row(task: Task, search: str) -> tuple[Grade, bool]:
    """Play an agent that acts on the last row of one search; say whether there was a choice."""
    env = await started(task)
    run, chose = expert(task), False
    wanted: ToolCall | None = next(run)
    while wanted is not None:
        result = await env.call(wanted.name, wanted.arguments)
        rows = result.text.splitlines()
        if wanted.name == search and len(rows) > 1:
            chose, result = True, ToolResult(text=rows[-1])
        if not result.text.startswith("{"):
            break
        try:
            wanted = run.send(result)
        except StopIteration:
            wanted = None
    return await env.score(), chose


async def play_then(task: Task, *after: ToolCall) -> tuple[Grade, list[ToolResult]]:
    """Play the expert's calls and then some more."""
    return await play(task, after=after)


async def replay(task: Task, calls: Sequence[ToolCall]) -> Grade:
    """Make these calls, whatever they answer; new ids are those of the first time."""
    env = await started(task)
    for call in calls:
        await env.call(call.name, call.arguments)
    return await env.score()


async def calls_of(task: Task) -> list[ToolCall]:
    """The calls of the expert."""
    calls: list[ToolCall] = []

    def record(call: ToolCall) -> Sequence[ToolCall]:
        calls.append(call)
        return (call,)

    await play(task, record)
    return calls


def changes_something(call: ToolCall) -> bool:
    """Tell whether a call does more than to look something up."""
    return not call.name.startswith(("find_", "list_", "search_"))


async def episode(env_key: str, template: str) -> tuple[MinifleetEnv, World]:
    """A fresh episode of some task of a template, and its state."""
    app = APPS[env_key]
    chosen = next(each for each in app.templates if each.name == template)
    env = await started(make_task(app, chosen, "train", 7))
    assert env._world is not None
    return env, env._world


async def refused(env: MinifleetEnv, tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """The text of an error result."""
    result = await env.call(tool, arguments)
    assert result.is_error, result.text
    return result.text


async def done(env: MinifleetEnv, tool: str, **arguments: JsonValue) -> str:
    """The text of a result that is no error."""
    result = await env.call(tool, arguments)
    assert not result.is_error, result.text
    return result.text


async def started(task: Task) -> MinifleetEnv:
    env = MinifleetEnv(APPS[task.env_key], task, None)
    await env.reset()
    return env


def with_argument(tool: str, **changed: str | int) -> Rewrite:
    """An agent that always gives these arguments to one tool."""

    def rewrite(call: ToolCall) -> Sequence[ToolCall]:
        if call.name != tool:
            return (call,)
        return (ToolCall(name=tool, arguments={**call.arguments, **changed}),)

    return rewrite


def without(tool: str) -> Rewrite:
    """An agent that stops where the expert would call this tool."""
    return lambda call: () if call.name == tool else (call,)


def repeating(call: ToolCall) -> Sequence[ToolCall]:
    """An agent that makes every call three times."""
    return (call, call, call)
