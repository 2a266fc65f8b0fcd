"""The prompt's words where the chat template describes the tools and the form of a call."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from trainer.rollouts.chat import prompts


class NativeWording:
    """The lines of `trainer/rollouts/chat/prompts.py` without tools and form of a call."""

    def __init__(self, *, shared_first: bool = False) -> None:
        """With `shared_first` a task's own lines begin the first user message.

        Templates put the tools after the system message or in the user message, so that only then
        all that tasks share comes first.
        """
        self._shared_first = shared_first

    @property
    def version(self) -> str:
        """Version of the text."""
        number = prompts.SHARED_FIRST_VERSION if self._shared_first else prompts.PROMPT_VERSION
        return f"native-{number}"

    def render_tools(self, tools: Sequence[ToolSpec]) -> str:
        """Return nothing: the template renders the tools."""
        return ""

    def compose_system(self, task: Task, tools_text: str) -> str:
        """Return the system message of a task, to which the template may add the tools."""
        own = () if self._shared_first else prompts.own_lines(task)
        return "\n".join((prompts.role_line(task), *own, *prompts.TURN_RULES))

    def compose_first(self, task: Task) -> str:
        """Return the first user message: the task, after its own lines if they come here."""
        if not self._shared_first:
            return task.prompt
        return "\n".join((*prompts.own_lines(task), task.prompt))

    def shared_part(self, tools_text: str) -> str:
        """Return the instructions."""
        return "\n".join(prompts.TURN_RULES)
