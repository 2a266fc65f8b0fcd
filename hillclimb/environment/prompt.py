"""The prompt of an episode: the task's own words, then what the environment's reset says."""

from __future__ import annotations

from dataclasses import replace

from hillclimb.environment.base import Env, ProvidesPrompt
from hillclimb.environment.task import Task


def with_prompt_of(env: Env, task: Task) -> Task:
    """Return the task with the prompt that its policy reads, after the environment's reset.

    A board without an instruction, and an instruction without its board, are half a task. Where
    one text contains the other, it is not said twice.
    """
    own, observed = task.prompt, env.prompt if isinstance(env, ProvidesPrompt) else ""
    if not observed or observed.strip() in own:
        return task
    both = observed if own.strip() in observed else f"{own}\n\n{observed}"
    return replace(task, prompt=both)
