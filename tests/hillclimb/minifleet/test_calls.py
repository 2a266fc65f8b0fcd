"""What a tool call may be: anything at all, answered by a result and never by an exception."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from hillclimb.environment.errors import EnvUnavailable
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.framework.world import World, next_number
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.hillclimb.minifleet.playing import started

TASKS = {key: minifleet_tasks((key,), "train", 1, 5)[0] for key in APPS}

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def calls(draw: st.DrawFn, task: Task) -> tuple[str, dict[str, JsonValue]]:
    """A call whose name and arguments are plausible or wild, independently of each other."""
    specs = {tool.spec.name: tool.spec for tool in APPS[task.env_key].tools}
    name = draw(st.sampled_from(sorted(specs)) | st.text(max_size=40))
    tables = task.payload["tables"]
    assert isinstance(tables, dict)
    known: list[JsonValue] = sorted(
        {v for rows in tables.values() for row in rows for v in row.values()},  # type: ignore[union-attr]
        key=str,
    )
    value = st.sampled_from(known) | st.integers(-3, 12) | json_values
    properties: list[str] = []
    if name in specs:
        shown = specs[name].parameters["properties"]
        assert isinstance(shown, dict)
        properties = sorted(shown)
    arguments = {key: draw(value) for key in properties if draw(st.integers(0, 9))}
    if not draw(st.integers(0, 4)):
        arguments[draw(st.text(max_size=300))] = draw(json_values)
    return name, arguments


@pytest.mark.parametrize("env_key", tuple(APPS))
def test_no_exception_escapes_a_call_and_answers_stay_short(env_key: str) -> None:
    task = TASKS[env_key]
    looking = {tool.spec.name for tool in APPS[env_key].tools if tool.is_read_only}

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(st.lists(calls(task), min_size=1, max_size=6))
    def fuzz(sequence: list[tuple[str, dict[str, JsonValue]]]) -> None:
        async def episode() -> None:
            env = await started(task)
            for name, arguments in sequence:
                before = deepcopy(env.tables()[1]) if name in looking else None
                result = await env.call(name, arguments)
                assert result.text
                assert len(result.text) < 700
                assert before in (None, env.tables()[1]), f"{name} changed what it only reads"
            assert (await env.score()).score in (0.0, 1.0)
            await env.close()
            await env.close()

        asyncio.run(episode())

    fuzz()


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("fly", {}, 'no tool "fly", use one of search_hotels, list_rooms'),
        ("search_hotels", {"query": "Brno"}, "missing argument sort"),
        ("search_hotels", {"query": 3, "sort": "price"}, "query must be a string"),
        ("search_hotels", {"query": "Brno", "sort": "age"}, "sort must be one of price, rating"),
        ("list_rooms", {"hotel": "h1", "guests": "2"}, "guests must be an integer"),
        ("list_rooms", {"hotel": "h1", "guests": True}, "guests must be an integer"),
        ("list_rooms", {"hotel": "h1", "guests": 2}, 'no hotel "h1"'),
        ("cancel_booking", {"booking": "b1", "why": "x"}, 'unknown argument "why"'),
        ("cancel_booking", {"booking": "b" * 300}, "booking is too long"),
    ],
)
async def test_a_wrong_call_is_told_what_is_wrong(
    name: str, arguments: dict[str, JsonValue], text: str
) -> None:
    env = await started(TASKS["booking"])
    result = await env.call(name, arguments)
    assert result.is_error
    assert result.text.startswith(text)


@pytest.mark.parametrize("env_key", tuple(APPS))
async def test_a_tool_that_only_looks_changes_nothing(env_key: str) -> None:
    looking = {tool.spec.name for tool in APPS[env_key].tools if tool.is_read_only}
    changing: set[str] = set()
    for task in minifleet_tasks((env_key,), "train", 30, 5):
        env, run = await started(task), expert(task)
        call = next(run)
        while True:
            before = deepcopy(env.tables()[1])
            result = await env.call(call.name, call.arguments)
            if env.tables()[1] != before:
                changing.add(call.name)
            try:
                call = run.send(result)
            except StopIteration:
                break
    assert looking
    assert changing
    assert not looking & changing


async def test_calls_and_grades_outside_an_episode_are_infra_errors() -> None:
    env = await started(TASKS["reddit"])
    await env.close()
    with pytest.raises(EnvUnavailable):
        await env.call("join", {"community": "chess"})
    with pytest.raises(EnvUnavailable):
        await env.score()


async def test_a_full_table_refuses_and_does_not_fail() -> None:
    env = await started(TASKS["github"])
    world = env._world
    assert isinstance(world, World)
    repo = world.rows("repos")[0]["id"]
    results = [await env.call("open_issue", {"repo": repo, "title": f"t{n}"}) for n in range(91)]
    assert results[-1].is_error
    assert results[-1].text == "the app is full"


def test_the_walk_over_new_ids_meets_every_number_once() -> None:
    taken: set[int] = set()
    for _ in range(90):
        taken.add(next_number(taken, 33))
    assert taken == set(range(10, 100))
