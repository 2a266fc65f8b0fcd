"""How schemas and answers of OpenEnv servers become tools and texts."""

from typing import Any

import pytest
from pydantic import JsonValue

from hillclimb.environment.errors import ToolTransport
from hillclimb.environment.task import Task
from hillclimb.spec.environment.openenv import OpenEnvServer
from trainer.envs.openenv.actions import Actions, without_titles
from trainer.envs.openenv.provider import OpenEnvProvider
from trainer.errors import SpecError

CALL = {"title": "CallToolAction", "properties": {"type": {"const": "call_tool"}}}
TOOLS = Actions(schema=CALL)
MOVES = Actions(schema={"title": "Move", "properties": {"to": {"type": "string"}, "metadata": {}}})


@pytest.mark.parametrize(
    ("schema", "are_tools"),
    [
        (CALL, True),
        ({"title": "Action", "properties": {"metadata": {"type": "object"}}}, True),
        ({"title": "Wait", "properties": {"metadata": {"type": "object"}}}, False),
        ({"title": "Action", "properties": {"to": {"type": "string"}}}, False),
        ({"title": "Move", "properties": {"type": {"enum": ["walk", "call_tool"]}}}, False),
    ],
)
def test_the_action_tells_whether_a_server_has_tools(
    schema: dict[str, Any], are_tools: bool
) -> None:
    assert Actions(schema=schema).are_tools is are_tools


def test_titles_go_and_arguments_named_title_stay() -> None:
    schema = {
        "title": "Post",
        "properties": {
            "title": {"title": "Title", "type": "string"},
            "tags": {"items": {"title": "Tag", "type": "string"}, "type": "array"},
        },
        "$defs": {"title": {"title": "X", "enum": ["title"]}},
    }
    assert without_titles(schema) == {
        "properties": {
            "title": {"type": "string"},
            "tags": {"items": {"type": "string"}, "type": "array"},
        },
        "$defs": {"title": {"enum": ["title"]}},
    }


@pytest.mark.parametrize(
    ("result", "text", "is_error"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
         "a\nb", False),
        ({"content": [{"type": "image", "data": "..."}], "is_error": False}, "[image]", False),
        ({"content": [{"type": "text", "text": "no such page"}], "is_error": True},
         "no such page", True),
        ({"left": 2}, '{"left": 2}', False),
        ([1, "ä"], '[1, "ä"]', False),
        ("plain", "plain", False),
    ],
)  # fmt: skip
def test_what_a_tool_says_is_shown_as_text(result: JsonValue, text: str, is_error: bool) -> None:
    said = TOOLS.result({"tool_name": "t", "result": result, "error": None}, ends_episode=True)
    assert (said.text, said.is_error, said.ends_episode) == (text, is_error, True)


@pytest.mark.parametrize("kind", ["tool_not_found", "invalid_args", "execution_error"])
def test_an_error_of_a_tool_is_told_to_the_model(kind: str) -> None:
    error = {"error_type": kind, "message": "cannot"}
    said = TOOLS.result({"tool_name": "t", "result": None, "error": error}, ends_episode=False)
    assert (said.text, said.is_error) == ("cannot", True)


@pytest.mark.parametrize("kind", ["timeout", "transport_error"])
def test_a_tool_that_did_not_answer_is_no_answer(kind: str) -> None:
    error = {"error_type": kind, "message": "30 s are over"}
    with pytest.raises(ToolTransport, match="30 s are over"):
        TOOLS.result({"tool_name": "t", "result": None, "error": error}, ends_episode=False)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({}, ""),
        ({"board": None}, ""),
        ({"board": "x o", "hint": None}, "x o"),
        ({"board": "x o", "turn": 2}, '{"board": "x o", "turn": 2}'),
        ({"error": {"error_type": "timeout"}}, '{"error": {"error_type": "timeout"}}'),
    ],
)
def test_an_observation_of_one_text_is_shown_alone(observation: dict[str, Any], text: str) -> None:
    assert MOVES.result(observation, ends_episode=False).text == text


def test_validation_errors_are_the_models_where_they_name_its_action() -> None:
    arguments: dict[str, JsonValue] = {"to": "b4", "fast": True}
    for place, is_models in ((["to"], True), (["fast"], True), ([], True), (["board"], False)):
        assert MOVES.caused_by_policy([{"loc": place, "msg": "no"}], arguments) is is_models


def a_task(reset: JsonValue) -> Task:
    """As the rows of a data set become tasks."""
    payload: dict[str, JsonValue] = {"env_version": None, "metadata": {"reset": reset}}
    return Task(key="t", env_key="w", prompt="Win.", template="w", difficulty=1, payload=payload)


def test_a_tasks_reset_arguments_lie_over_the_servers() -> None:
    server = OpenEnvServer(url="http://127.0.0.1:1", reset={"board": "small", "seed": 0})
    provider = OpenEnvProvider({"w": server}, {})
    assert provider.make(a_task({"seed": 4})).arguments == {"board": "small", "seed": 4}
    assert provider.make(a_task(None)).arguments == {"board": "small", "seed": 0}


def test_reset_arguments_that_are_none_are_refused() -> None:
    provider = OpenEnvProvider({"w": OpenEnvServer(url="http://127.0.0.1:1")}, {})
    with pytest.raises(SpecError, match=r"metadata\.reset of task t is no object"):
        provider.make(a_task([1]))
