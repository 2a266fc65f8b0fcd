"""Calls that name a thing which exists, by a policy that was never shown it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.environment.task import Task
from tests.hillclimb.stats.trajectories.labelled.material.lookups import rows_of


@dataclass(frozen=True, slots=True)
class Guess:
    """A call that the app accepts; `which` is the argument that was guessed."""

    tool: str
    which: str
    arguments: Mapping[str, JsonValue]


_CALLS: Mapping[str, tuple[str, str, str, Mapping[str, JsonValue]]] = {
    "booking": ("hotels", "list_rooms", "hotel", {"guests": 1}),
    "github": ("issues", "label_issue", "issue", {"label": "bug"}),
    "outlook": ("mails", "move_mail", "mail", {"folder": "work"}),
    "reddit": ("posts", "upvote", "post", {}),
    "ticketmaster": ("events", "list_seats", "event", {}),
    "fira": ("tickets", "plan_ticket", "ticket", {"sprint": "backlog"}),
    "hubspot": ("deals", "set_deal", "deal", {"amount": 900}),
    "zillow": ("homes", "list_slots", "home", {}),
}
_FREE = {
    "github": ("state", ("open",)),
    "fira": ("status", ("todo",)),
    "hubspot": ("stage", ("lead", "qualified", "offered", "due", "quoted")),
    "zillow": ("status", ("for sale",)),
}
"""Rows that take the call: a field, and its values."""


def unshown(task: Task) -> Iterator[Guess]:
    """Yield calls on each row of the start state that takes them."""
    table, tool, which, rest = _CALLS[task.env_key]
    field, values = _FREE.get(task.env_key, ("id", ()))
    if task.env_key == "zillow":
        rest = {"date": task.env_variables["CURRENT_DATE"]}
    for row in rows_of(task, table):
        is_mine = row.get("author") == task.env_variables["LOGGED_IN_USER"]
        if not is_mine and (not values or row[field] in values):
            yield Guess(tool, which, {which: row["id"], **rest})
