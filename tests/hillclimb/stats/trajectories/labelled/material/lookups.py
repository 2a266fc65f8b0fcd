"""Calls that read something, every one different, as a policy makes while it looks around."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import cast

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task

Rows = list[dict[str, str | int]]


def rows_of(task: Task, table: str) -> Rows:
    """Return the rows of a table in the start state."""
    tables = task.payload["tables"]
    assert isinstance(tables, dict)
    rows = tables[table]
    assert isinstance(rows, list)
    return cast("Rows", rows)


def lookups(task: Task, rng: random.Random) -> Iterator[ToolCall]:
    """Yield reading calls in random order: those about the app's own names come first."""
    words = [word for word in _words(task) if len(word) > 2]
    rng.shuffle(words)
    pairs = [a + b for a in string.ascii_lowercase for b in "aeiou"]
    rng.shuffle(pairs)
    made: set[str] = set()
    for word in words + pairs:
        call = search(task, word, rng)
        if str(call) not in made:
            made.add(str(call))
            yield call


def search(task: Task, query: str, rng: random.Random) -> ToolCall:
    """Return one of the app's searches for a query."""
    arguments: dict[str, JsonValue] = {"query": query}
    match task.env_key:
        case "booking":
            name = "search_hotels"
            arguments["sort"] = rng.choice(("price", "rating"))
        case "github":
            name = "find_issues"
            arguments = {"repo": rows_of(task, "issues")[0]["repo"], "query": query}
        case "outlook":
            name = "find_mails"
        case "reddit":
            name = "search_posts"
            community = rows_of(task, "posts")[0]["community"]
            arguments = {"community": community, "query": query}
        case "ticketmaster":
            name = "search_events"
        case "fira":
            name = "find_tickets"
        case "hubspot":
            name = rng.choice(("find_deals", "find_contacts"))
        case _:
            name = "find_homes"
    return ToolCall(name=name, arguments=arguments)


def _words(task: Task) -> list[str]:
    tables = task.payload["tables"]
    assert isinstance(tables, dict)
    names = ("name", "city", "title", "subject", "artist", "address", "owner", "author", "company")
    found = {
        str(row[name]).split()[-1]
        for rows in tables.values()
        if isinstance(rows, list)
        for row in rows
        if isinstance(row, dict)
        for name in names
        if name in row
    }
    return sorted(found)
