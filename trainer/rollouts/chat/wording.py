"""The port of a prompt's wording, and Hillclimb's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from trainer.rollouts.chat import prompts


class Wording(Protocol):
    """The text of a prompt before its task: versioned, because wording alone moves pass rates."""

    @property
    def version(self) -> str:
        """Version of the text, stored with every run."""
        ...

    def render_tools(self, tools: Sequence[ToolSpec]) -> str:
        """Return the part of a system message that describes the tools, which tasks share."""
        ...

    def compose_system(self, task: Task, tools_text: str) -> str:
        """Return the system message of a task around its rendered tools."""
        ...

    def compose_first(self, task: Task) -> str:
        """Return the first user message."""
        ...

    def shared_part(self, tools_text: str) -> str:
        """Return the tools and the rules after them, which all system messages contain."""
        ...


class OwnWording:
    """The wording of `trainer/rollouts/chat/prompts.py`."""

    def __init__(self, *, shared_first: bool = False) -> None:
        """With `shared_first` the lines that tasks share come before those of each task."""
        self._shared_first = shared_first

    @property
    def version(self) -> str:
        """Version of the text."""
        return prompts.SHARED_FIRST_VERSION if self._shared_first else prompts.PROMPT_VERSION

    def render_tools(self, tools: Sequence[ToolSpec]) -> str:
        """Return one line of JSON per tool."""
        return prompts.render_tools(tools)

    def compose_system(self, task: Task, tools_text: str) -> str:
        """Return the system message of a task."""
        return prompts.compose_system(task, tools_text, shared_first=self._shared_first)

    def compose_first(self, task: Task) -> str:
        """Return the task's prompt as it is."""
        return task.prompt

    def shared_part(self, tools_text: str) -> str:
        """Return the tools and the instructions after them."""
        return "\n".join((tools_text, *prompts.INSTRUCTIONS))


OWN_WORDING = OwnWording()
