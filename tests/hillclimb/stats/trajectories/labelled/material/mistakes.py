"""Calls that an app refuses: arguments of the wrong shape, and things that do not exist."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from tests.hillclimb.stats.trajectories.labelled.material.lookups import rows_of

Arguments = dict[str, JsonValue]

_UNKNOWN: tuple[tuple[str, JsonValue], ...] = (
    ("limit", 10),
    ("verbose", True),
    ("page", 2),
    ("sort_by", "date"),
    ("reason", "as requested"),
    ("notify", False),
)
_OUTSIDE: Mapping[tuple[str, str], JsonValue] = {
    ("book_room", "nights"): 30,
    ("book_room", "date"): "next Friday",
    ("change_booking", "nights"): 0,
    ("add_event", "date"): "12/24/2026",
    ("hold_seats", "count"): 40,
    ("change_hold", "count"): 0,
    ("create_ticket", "points"): 4,
    ("log_work", "date"): "yesterday",
    ("set_deal", "amount"): 2_500_000,
    ("save_search", "beds"): 0,
    ("list_slots", "date"): "Sept. 9th",
    ("book_tour", "date"): "soon",
}
"""Values that are refused whatever the state is, where the app itself checks them."""


def misshapen(call: ToolCall, task: Task, rng: random.Random) -> Mapping[str, Arguments]:
    """Return wrong arguments of an otherwise right call, by kind."""
    schema, required = _schema(call, task)
    kinds: dict[str, Arguments] = {}
    given = dict(call.arguments)
    if required:
        left_out = rng.choice(required)
        kinds["missing"] = {name: value for name, value in given.items() if name != left_out}
    name, value = rng.choice(_UNKNOWN)
    kinds["unknown"] = {**given, name: value}
    for name in given:
        kinds["type"] = {**given, name: _of_another_type(schema[name], rng)}
        if "enum" in schema[name]:
            kinds["choice"] = {**given, name: rng.choice(("any", "default", "first one"))}
        if (call.name, name) in _OUTSIDE:
            kinds["range"] = {**given, name: _OUTSIDE[call.name, name]}
    return kinds


def ghost(task: Task, rng: random.Random, seen: str) -> tuple[str, Arguments, str]:
    """Return a call that names something which does not exist: tool, arguments, which argument."""
    while True:
        name, arguments, which = rng.choice(list(_ghosts(task, rng)))
        if str(arguments[which]).casefold() not in seen.casefold():
            return name, arguments, which


def _ghosts(task: Task, rng: random.Random) -> Iterator[tuple[str, Arguments, str]]:
    number = rng.randrange(112, 999)
    date = task.env_variables["CURRENT_DATE"]
    match task.env_key:
        case "booking":
            yield "list_rooms", {"hotel": f"h{number}", "guests": 2}, "hotel"
            yield "cancel_booking", {"booking": f"b{number}"}, "booking"
            yield "change_booking", {"booking": f"b{number}", "nights": 3}, "booking"
        case "github":
            yield "label_issue", {"issue": number, "label": "bug"}, "issue"
            yield "comment_issue", {"issue": number, "text": "looking into it"}, "issue"
            yield "close_issue", {"issue": number}, "issue"
        case "outlook":
            yield "move_mail", {"mail": f"m{number}", "folder": "archive"}, "mail"
            address = rows_of(task, "contacts")[0]["address"]
            yield "forward_mail", {"mail": f"m{number}", "to": address}, "mail"
        case "reddit":
            yield "upvote", {"post": f"t{number}"}, "post"
            yield "comment", {"post": f"t{number}", "text": "nice one"}, "post"
            yield "set_flair", {"post": f"t{number}", "flair": "news"}, "post"
        case "ticketmaster":
            yield "list_seats", {"event": f"e{number}"}, "event"
            yield "hold_seats", {"seat": f"s{number}", "count": 2}, "seat"
            yield "pay_hold", {"hold": f"k{number}", "card": "visa"}, "hold"
        case "fira":
            yield "move_ticket", {"ticket": f"f{number}", "status": "doing"}, "ticket"
            yield "plan_ticket", {"ticket": f"f{number}", "sprint": "backlog"}, "ticket"
            yield "log_work", {"ticket": f"f{number}", "hours": 2, "date": date}, "ticket"
        case "hubspot":
            yield "set_deal", {"deal": f"d{number}", "amount": 700}, "deal"
            yield "move_deal", {"deal": f"d{number}", "stage": "qualified"}, "deal"
            yield "log_activity", {"deal": f"d{number}", "kind": "note", "text": "hm"}, "deal"
        case _:
            yield "list_slots", {"home": f"h{number}", "date": date}, "home"
            yield "make_offer", {"home": f"h{number}", "price": 300}, "home"


def _schema(call: ToolCall, task: Task) -> tuple[dict[str, Arguments], list[str]]:
    """Return the schemas of a tool's arguments by name, and the names of those that it needs."""
    tool = next(tool for tool in APPS[task.env_key].tools if tool.spec.name == call.name)
    properties, required = (tool.spec.parameters[part] for part in ("properties", "required"))
    return cast("dict[str, Arguments]", properties), cast("list[str]", required)


def _of_another_type(schema: Mapping[str, JsonValue], rng: random.Random) -> JsonValue:
    wrong: tuple[JsonValue, ...] = (7, ["first"], True, None)
    if schema["type"] == "integer":
        wrong = ("three", "2 of them", True, None, [1])
    return rng.choice(wrong)
