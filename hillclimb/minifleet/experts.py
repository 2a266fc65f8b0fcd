"""Scripted experts: the calls of a perfect agent, for demonstrations and tests."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.framework.app import ExpertRun


def expert(task: Task) -> ExpertRun:
    """Return a generator that yields each call of a perfect episode of `task`.

    Send it the `ToolResult` of each call; it returns when the goal is reached. It uses what an
    agent sees (prompt, variables, results) and the request as data in the payload, never the
    app's state.

    Raises:
        KeyError: no miniature app has the task's key.
    """
    return APPS[task.env_key].expert(task)
