"""What the agent reads."""

from __future__ import annotations

from dataclasses import replace

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.spec.environment.prompt import PromptSpec
from trainer.rollouts.chat.parsing import parse_turn
from trainer.rollouts.chat.prompts import (
    prompt_hash,
    render_call,
    render_observation,
    render_system,
)
from trainer.rollouts.styles.choose import choose_style

TOOL = ToolSpec(
    name="search", description="by name", parameters={"type": "object", "properties": {}}
)
TASK = Task(
    key="k",
    env_key="booking",
    prompt="Book it.",
    template="t",
    difficulty=1,
    env_variables={"LOGGED_IN_USER": "Mira", "CURRENT_DATE": "2021-02-03", "LOGGED_IN_NAME": "M"},
)


def hashed(task: Task, tool: ToolSpec) -> str:
    return prompt_hash(render_system(task, (tool,)), task.prompt)


def test_the_system_message_has_its_sections_in_order() -> None:
    assert render_system(TASK, (TOOL,)) == "\n".join(
        [
            "You are an agent working in the app booking.",
            "Current date: 2021-02-03",
            "LOGGED_IN_NAME: M",
            "LOGGED_IN_USER: Mira",
            "Tools:",
            '{"name":"search","description":"by name",'
            '"parameters":{"type":"object","properties":{}}}',
            'Call format: <tool_call>{"name": ..., "arguments": {...}}</tool_call>',
            "Do not repeat a call with identical arguments.",
            "End every turn with one tool call, or with <done> when the task is complete.",
        ]
    )


def test_the_second_version_has_the_tasks_own_lines_last() -> None:
    first = render_system(TASK, (TOOL,)).split("\n")
    style = choose_style(PromptSpec(version="2"))
    second = style.wording.compose_system(TASK, style.wording.render_tools((TOOL,))).split("\n")
    assert second == [first[0], *first[4:], *first[1:4]]
    assert (style.wording.version, choose_style(PromptSpec()).wording.version) == ("2", "1")


def test_without_a_date_the_prompt_names_none() -> None:
    assert "date" not in render_system(replace(TASK, env_variables={}), (TOOL,))


def test_observations_say_whether_they_are_errors() -> None:
    assert render_observation("x", is_error=False) == "Tool result:\nx"
    assert render_observation("x", is_error=True) == "Error: x"


def test_the_hash_changes_with_everything_shown_and_with_nothing_else() -> None:
    first = hashed(TASK, TOOL)
    assert hashed(replace(TASK, key="other", payload={"seed": 3}), TOOL) == first
    assert hashed(replace(TASK, prompt="Cancel it."), TOOL) != first
    assert hashed(TASK, replace(TOOL, description="by id")) != first
    moved = {**TASK.env_variables, "CURRENT_DATE": "2021-02-04"}
    assert hashed(replace(TASK, env_variables=moved), TOOL) != first


def test_a_rendered_call_is_what_the_parser_reads() -> None:
    (call,) = parse_turn(render_call("search", {"query": "Zürich"})).calls
    assert call.arguments == {"query": "Zürich"}
