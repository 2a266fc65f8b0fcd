"""The apps of minifleet, and the construction of a task from its key."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.minifleet.apps import (
    booking,
    fira,
    github,
    hubspot,
    outlook,
    reddit,
    ticketmaster,
    zillow,
)
from hillclimb.minifleet.framework.app import App
from hillclimb.minifleet.framework.template import TaskDraw, Template

Split = Literal["train", "eval"]

INDEX_DIGITS = 6
"""Digits of a task's number, at the end of its key."""

APPS: Mapping[str, App] = MappingProxyType(
    {
        app.APP.key: app.APP
        for app in (booking, github, outlook, reddit, ticketmaster, fira, hubspot, zillow)
    }
)
"""Every app by its key, in a fixed order."""


def make_task(app: App, template: Template, split: Split, index: int) -> Task:
    """Return the task `env/split/template/index`: the content depends on the key alone."""
    key = f"{app.key}/{split}/{template.name}/{index:0{INDEX_DIGITS}d}"
    draw = TaskDraw(key, split)
    problem = template.build(draw)
    payload: dict[str, JsonValue] = {
        "goal": dict(problem.goal),
        "tables": {name: [dict(row) for row in rows] for name, rows in problem.tables.items()},
        "changes": list(problem.changes),
        "fresh": draw.fresh,
    }
    return Task(
        key=key,
        env_key=app.key,
        prompt=draw.one(template.wordings).format(**problem.words),
        template=template.name,
        difficulty=template.difficulty,
        held_out_template=template.held_out,
        env_variables={"CURRENT_DATE": draw.today, "LOGGED_IN_USER": problem.user},
        payload=payload,
    )


def find_task(key: str) -> Task | None:
    """Return the task that `make_task` makes for this key, or None where no task can have it."""
    match key.split("/"):
        case [env_key, ("train" | "eval") as split, name, index] if len(index) == INDEX_DIGITS:
            app = APPS.get(env_key)
            templates = app.templates if app else ()
            template = next((each for each in templates if each.name == name), None)
            if app and template and index.isascii() and index.isdigit():
                return make_task(app, template, "train" if split == "train" else "eval", int(index))
    return None
