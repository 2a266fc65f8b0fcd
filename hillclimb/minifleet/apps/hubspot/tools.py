"""Hubspot's tools: companies employ contacts and have deals, deals carry activities and an owner.

Rules: a deal goes through the stages of its own pipeline one by one, and each stage
requires a contact, an amount, or a logged call, meeting or note. Closed deals take no more
changes. A deal's contact works at its company. Owners come in turns: only the rep who is next
gets a deal, and then goes to the end. Contacts merge only with contacts of the same name at the
same company, and the one that stays takes over the deals.
"""

from __future__ import annotations

from collections.abc import Mapping

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import integer, text
from hillclimb.minifleet.framework.world import (
    Fields,
    Row,
    RuleBroken,
    World,
    matches,
    quoted,
    same,
)

PIPELINES: Mapping[str, tuple[str, ...]] = {
    "sales": ("lead", "qualified", "offered", "won"),
    "renewal": ("due", "quoted", "renewed"),
}
"""The stages of each pipeline in order; from each of them but the last a deal may also be lost."""
LOST = "lost"
CLOSED = ("won", "renewed", LOST)
STAGES = ("qualified", "offered", "won", "quoted", "renewed", LOST)
KINDS = ("call", "meeting", "note")
MAX_AMOUNT = 99_999
_PROPERTY = {"qualified": "contact", "offered": "amount", "quoted": "amount"}
_ACTIVITY = {"won": "meeting", "renewed": "call", LOST: "note"}
"""Requirement of a stage: a property of the deal, or an activity logged on it."""


def find_contacts(world: World, args: Fields) -> str:
    """Return the contacts of a name or a company."""
    query = args.text("query")
    return lines(
        {
            "contact": row["id"],
            "name": row["name"],
            "email": row["email"],
            "company": row["company"],
        }
        for row in world.rows("contacts")
        if same(query, row["name"]) or same(query, row["company"])
    )


def find_deals(world: World, args: Fields) -> str:
    """Return the open deals whose title or company matches."""
    query = args.text("query")
    return lines(
        {"deal": row["id"], "title": row["title"], "stage": row["stage"], "amount": row["amount"]}
        for row in world.rows("deals")
        if row["stage"] not in CLOSED and matches(query, row["title"], row["company"])
    )


def list_reps(world: World, _args: Fields) -> str:
    """Return the sales reps, the one whose turn it is first."""
    reps = sorted(world.rows("reps"), key=lambda row: int(row["turn"]))
    return lines({"rep": row["id"]} for row in reps)


def set_deal(world: World, args: Fields) -> str:
    """Set the amount, the contact or the owner of a deal."""
    deal = _open_deal(world, args)
    changes: Row = {}
    if "amount" in args:
        changes["amount"] = args.number("amount")
        if not 1 <= int(changes["amount"]) <= MAX_AMOUNT:
            raise RuleBroken(f"amount must be 1 to {MAX_AMOUNT}")
    if "contact" in args:
        contact = world.get("contacts", args.text("contact"), "contact")
        if contact["company"] != deal["company"]:
            raise RuleBroken(f"{contact['name']} does not work at {deal['company']}")
        changes["contact"] = contact["id"]
    if "owner" in args:
        rep = world.get("reps", args.text("owner"), "rep")
        _take_turn(world, rep)
        changes["owner"] = rep["id"]
    if not changes:
        raise RuleBroken("nothing to set: give amount, contact or owner")
    deal.update(changes)
    return line(deal=deal["id"], **changes)


def move_deal(world: World, args: Fields) -> str:
    """Move a deal to the next stage of its pipeline, or to lost."""
    deal, stage = _open_deal(world, args), args.text("stage")
    order = PIPELINES[str(deal["pipeline"])]
    following = order[order.index(str(deal["stage"])) + 1]
    if stage not in (following, LOST):
        raise RuleBroken(f"from {deal['stage']} it goes to {following} or {LOST}")
    needed = _PROPERTY.get(stage)
    if needed is not None and not deal[needed]:
        raise RuleBroken(f"{stage} needs the deal's {needed}: set it first")
    kind = _ACTIVITY.get(stage)
    if kind is not None and not world.rows("activities", deal=deal["id"], kind=kind):
        raise RuleBroken(f"{stage} needs a {kind} on the deal: log it first")
    deal["stage"] = stage
    return line(deal=deal["id"], stage=stage)


def log_activity(world: World, args: Fields) -> str:
    """Log a call, a meeting or a note of the user's on a deal."""
    deal, note = _open_deal(world, args), args.text("text").strip()
    if not note:
        raise RuleBroken("text is empty")
    entry: Row = {"deal": deal["id"], "kind": args.text("kind"), "text": note, "rep": world.user}
    world.add("activities", "a", **entry)
    return line(deal=deal["id"], status="logged")


def merge_contacts(world: World, args: Fields) -> str:
    """Merge a duplicate into the contact to keep, which takes over its deals."""
    contact = world.get("contacts", args.text("keep"), "contact")
    duplicate = world.get("contacts", args.text("drop"), "contact")
    if contact is duplicate:
        raise RuleBroken("this is one contact: give two")
    if any(contact[part] != duplicate[part] for part in ("name", "company")):
        raise RuleBroken("these are two people: name and company must be the same")
    for deal in world.rows("deals", contact=duplicate["id"]):
        deal["contact"] = contact["id"]
    del world.tables["contacts"][str(duplicate["id"])]
    return line(contact=contact["id"], status="merged")


def _open_deal(world: World, args: Fields) -> Row:
    deal = world.get("deals", args.text("deal"), "deal")
    if deal["stage"] in CLOSED:
        raise RuleBroken(f"deal is {deal['stage']}: closed deals take no changes")
    return deal


def _take_turn(world: World, rep: Row) -> None:
    """Send the rep whose turn it is to the end of the rota."""
    turns = [int(row["turn"]) for row in world.rows("reps")]
    if rep["turn"] != min(turns):
        raise RuleBroken(f"it is not the turn of {quoted(rep['id'])}: list_reps shows whose it is")
    rep["turn"] = max(turns) + 1


TOOLS: tuple[Tool, ...] = (
    read_only_tool("find_contacts", "by name or company", find_contacts, {"query": text()}),
    read_only_tool("find_deals", "by title or company", find_deals, {"query": text()}),
    read_only_tool("list_reps", "whose turn, first", list_reps, {}),
    tool(
        "set_deal",
        "set some of these",
        set_deal,
        {"deal": text()},
        amount=integer(),
        contact=text(),
        owner=text(),
    ),
    tool("move_deal", "next stage, or lost", move_deal, {"deal": text(), "stage": text(*STAGES)}),
    tool(
        "log_activity",
        "on a deal",
        log_activity,
        {"deal": text(), "kind": text(*KINDS), "text": text()},
    ),
    tool("merge_contacts", "merge duplicates", merge_contacts, {"keep": text(), "drop": text()}),
)
