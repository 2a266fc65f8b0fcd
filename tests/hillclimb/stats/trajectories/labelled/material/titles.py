"""Data that mention errors: titles, subjects and names in the start state of an app."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from tests.hillclimb.stats.trajectories.labelled.material.lookups import rows_of, search

ABOUT_ARGUMENTS = (
    "invalid argument when saving a draft",
    "Error: missing required field on checkout",
    "ValidationError: nights must be an integer",
    "unknown argument in export, please fix",
    "Input should be a valid integer (signup form)",
    "422 Unprocessable Entity after login",
    "MCP error -32602: Invalid params in the logs",
    '{"error": "invalid_request"} shown to guests',
    "must be one of: a survey about formats",
    "400 Bad Request for long names",
)
ABOUT_PERMISSION = (
    "permission denied when saving",
    "401 Unauthorized for new members",
    "403 Forbidden after the password reset",
    "Error: access denied on upload",
    "not allowed to comment: wrong wording",
    "AuthenticationError: token expired in CI",
    '{"error": "forbidden"} on the start page',
    "insufficient permissions banner flickers",
    "Unauthorized discount codes",
    "login required pop-up covers the map",
)
ABOUT_MISSING = (
    "404 not found on login",
    "Error: no such file or directory in setup",
    "page does not exist after the rename",
    "NotFoundError: user 12 in the crash report",
    "unknown ID shown in the footer",
    '{"error": "not found"} instead of a picture',
    "No results found: change this text",
    "could not be found, says the search box",
    "HTTP 404 for every second avatar",
    "ENOENT: no such file, open config",
)
ABOUT_ERRORS = ABOUT_ARGUMENTS + ABOUT_PERMISSION + ABOUT_MISSING
POOLS: Mapping[str, tuple[str, ...]] = {
    "arguments": ABOUT_ARGUMENTS,
    "permission": ABOUT_PERMISSION,
    "missing": ABOUT_MISSING,
    "errors": ABOUT_ERRORS,
}

_FIRST_ID = 10
_TABLES = {
    "booking": ("hotels", "h", "name"),
    "github": ("issues", "", "title"),
    "outlook": ("mails", "m", "subject"),
    "reddit": ("posts", "t", "title"),
    "ticketmaster": ("events", "e", "artist"),
    "fira": ("tickets", "f", "title"),
    "hubspot": ("deals", "d", "title"),
    "zillow": ("homes", "h", "address"),
}
_ELSEWHERE: Mapping[str, Mapping[str, JsonValue]] = {
    "booking": {"city": "Elsewhere", "price": 99, "rating": 1},
    "github": {"assignee": "nobody", "state": "open"},
    "outlook": {"folder": "inbox"},
    "reddit": {"author": "nobody", "flair": "", "points": 0, "hours": 99, "locked": 0},
    "ticketmaster": {"city": "Elsewhere", "date": "2026-12-31"},
    "fira": {"owner": "Nobody", "status": "todo", "sprint": "backlog", "blocker": "", "points": 1},
    "hubspot": {"company": "Elsewhere", "pipeline": "sales", "stage": "lead"},
    "zillow": {"city": "Elsewhere", "price": 999, "beds": 1, "days": 99, "status": "for sale"},
}
"""Values that keep the further row out of whatever the task asks for."""


def with_title(task: Task, title: str, rng: random.Random) -> Task:
    """Return a task whose app has one more row, of this title."""
    table, prefix, field = _TABLES[task.env_key]
    rows = rows_of(task, table)
    used = {str(row["id"]) for row in rows}
    free = [number for number in range(_FIRST_ID, 100) if f"{prefix}{number}" not in used]
    number = rng.choice(free)
    identity: JsonValue = f"{prefix}{number}" if prefix else number
    row = {**rows[0], **_ELSEWHERE[task.env_key], "id": identity, field: title}
    tables = task.payload["tables"]
    assert isinstance(tables, dict)
    more: list[JsonValue] = [cast("JsonValue", each) for each in (*rows, row)]
    grown: dict[str, JsonValue] = {**tables, table: more}
    return replace(task, payload={**task.payload, "tables": grown})


def search_title(task: Task, title: str, rng: random.Random) -> ToolCall:
    """Return the search that finds a title by its second half."""
    call = search(task, title[len(title) // 2 :].split(" ", 1)[-1], rng)
    return replace(call, name="find_deals") if task.env_key == "hubspot" else call
