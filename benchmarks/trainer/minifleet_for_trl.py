"""Minifleet behind TRL's `environment_factory`: the same tasks, words, tools and reward.

TRL calls tools as typed, documented methods and renders the conversation itself. So each app
becomes a class whose methods carry the signature of the app's tools, the system message is
rendered by our own `render_system`, and the chat template adds nothing to it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Coroutine, Mapping
from types import FunctionType
from typing import Any, TypeVar

from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from trainer.envs.minifleet import MinifleetProvider
from trainer.rollouts.chat.prompts import render_observation, render_system

_T = TypeVar("_T")
_PYTHON_TYPE = {"string": str, "integer": int, "number": float, "boolean": bool}
DONE = "<done>"

CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def finished(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits: without faults minifleet's do not."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    raise RuntimeError("the environment waited for something")


def row_of(task: Task) -> dict[str, Any]:
    """A row of TRL's dataset; the task itself comes back in `reset` by its key."""
    tools = finished(MinifleetProvider().make(task).reset())
    return {
        "environment": task.env_key,
        "task_key": task.key,
        "prompt": [
            {"role": "system", "content": render_system(task, tools)},
            {"role": "user", "content": task.prompt},
        ],
    }


class Episode:
    """What TRL keeps one of per rollout; `env` is the episode of the present task."""

    env: MinifleetEnv


def environment_class(env_key: str, tasks: Mapping[str, Task]) -> type:
    """The class TRL makes instances of for one app; `tasks` are looked up by key."""
    provider = MinifleetProvider(env_keys=(env_key,))

    def reset(self: Episode, task_key: str, **_row: object) -> None:
        self.env = provider.make(tasks[task_key])
        finished(self.env.reset())

    some = MinifleetEnv(APPS[env_key], next(iter(tasks.values())), None)
    methods = {tool.name: _method(tool) for tool in finished(some.reset())}
    return type(f"Minifleet{env_key.title()}", (Episode,), {"reset": reset, **methods})


def reward(completions: list[Any], environments: list[Episode], **_columns: object) -> list[float]:
    """Our rule: only an episode that ends with `<done>` is graded by the verifier, others are 0."""
    return [
        float(finished(environment.env.score()).score or 0.0) if _says_done(completion) else 0.0
        for completion, environment in zip(completions, environments, strict=True)
    ]


def _says_done(completion: list[Mapping[str, Any]]) -> bool:
    last = completion[-1]
    return last["role"] == "assistant" and DONE in (last.get("content") or "")


def _method(tool: ToolSpec) -> FunctionType:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})  # type: ignore[assignment]
    required = set(tool.parameters.get("required", ()))  # type: ignore[arg-type]

    def call(self: Episode, **arguments: JsonValue) -> str:
        result = finished(self.env.call(tool.name, arguments))
        return render_observation(result.text, is_error=result.is_error)

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name in sorted(properties, key=lambda each: each not in required):
        kind = _PYTHON_TYPE.get(str(properties[name].get("type")), str)
        default = inspect.Parameter.empty if name in required else None
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
        )
    call.__name__ = tool.name
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters[1:]} | {"return": str}
    arguments = "\n".join(f"    {name}: {json.dumps(properties[name])}" for name in properties)
    call.__doc__ = f"{tool.description}\n\nArgs:\n{arguments}" if arguments else tool.description
    return call
