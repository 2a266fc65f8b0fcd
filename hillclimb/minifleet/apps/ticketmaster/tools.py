"""Ticketmaster's tools: events sell offers of seats, which are held first and then paid.

Rules: a hold needs as many seats left as it asks for, at most 6; a fan has one open hold at a
time; only cards on the account pay; a paid hold becomes an order.
"""

from __future__ import annotations

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import integer, text
from hillclimb.minifleet.framework.world import Fields, Row, RuleBroken, World, matches, same

SECTIONS = ("floor", "balcony", "terrace", "box")
CARDS = ("visa", "amex", "maestro", "diners")
MAX_SEATS = 6


def search_events(world: World, args: Fields) -> str:
    """Return the coming events of an artist or a city, the next first; `date` narrows to a day."""
    query, date = args.text("query"), args.text("date")
    events = [
        row
        for row in world.rows("events")
        if str(row["date"]) >= world.today
        and matches(query, row["artist"], row["city"])
        and date in ("", row["date"])
    ]
    events.sort(key=lambda row: str(row["date"]))
    return lines(
        {"event": row["id"], "artist": row["artist"], "date": row["date"]} for row in events
    )


def list_seats(world: World, args: Fields) -> str:
    """Return an event's offers, the cheapest first; `section` narrows to one."""
    event, section = world.get("events", args.text("event"), "event"), args.text("section")
    offers = [
        row for row in world.rows("offers", event=event["id"]) if section in ("", row["section"])
    ]
    offers.sort(key=lambda row: int(row["price"]))
    return lines(
        {"seat": row["id"], "section": row["section"], "price": row["price"]} for row in offers
    )


def hold_seats(world: World, args: Fields) -> str:
    """Hold seats of an offer for the user."""
    offer = world.get("offers", args.text("seat"), "seat")
    if world.rows("holds", fan=world.user):
        raise RuleBroken("you have an open hold")
    count = _count(world, args, offer)
    hold = world.add("holds", "k", seat=offer["id"], count=count, fan=world.user)
    return line(hold=hold, status="held, not paid")


def list_holds(world: World, args: Fields) -> str:
    """Return a fan's open holds."""
    return lines(
        {"hold": row["id"], "seat": row["seat"], "count": row["count"]}
        for row in world.rows("holds")
        if same(row["fan"], args.text("fan"))
    )


def change_hold(world: World, args: Fields) -> str:
    """Set the number of seats of the user's hold."""
    hold = _own_hold(world, args)
    hold["count"] = _count(world, args, world.get("offers", hold["seat"], "seat"))
    return line(hold=hold["id"], status="held, not paid")


def pay_hold(world: World, args: Fields) -> str:
    """Pay the user's hold with a card on the account, which makes it an order."""
    hold, card = _own_hold(world, args), args.text("card")
    if not world.rows("cards", fan=world.user, card=card):
        raise RuleBroken(f"{card} is not on your account")
    del world.tables["holds"][str(hold["id"])]
    bought: Row = {"seat": hold["seat"], "count": hold["count"]}
    order = world.add("orders", "o", **bought, fan=world.user, card=card)
    return line(order=order, status="paid")


def _own_hold(world: World, args: Fields) -> Row:
    hold = world.get("holds", args.text("hold"), "hold")
    if hold["fan"] != world.user:
        raise RuleBroken("this is not your hold")
    return hold


def _count(world: World, args: Fields, offer: Row) -> int:
    count = args.number("count")
    if not 1 <= count <= MAX_SEATS:
        raise RuleBroken(f"count must be 1 to {MAX_SEATS}")
    others = [row for row in world.rows("holds", seat=offer["id"]) if row["fan"] != world.user]
    gone = [*others, *world.rows("orders", seat=offer["id"])]
    left = int(offer["seats"]) - sum(int(row["count"]) for row in gone)
    if count > left:
        raise RuleBroken(f"only {left} seats left")
    return count


TOOLS: tuple[Tool, ...] = (
    read_only_tool(
        "search_events", "by artist or city", search_events, {"query": text()}, date=text()
    ),
    read_only_tool(
        "list_seats",
        "cheapest first",
        list_seats,
        {"event": text()},
        section=text(*SECTIONS),
    ),
    tool("hold_seats", "hold", hold_seats, {"seat": text(), "count": integer()}),
    read_only_tool("list_holds", "of a fan", list_holds, {"fan": text()}),
    tool("change_hold", "set count", change_hold, {"hold": text(), "count": integer()}),
    tool("pay_hold", "pay", pay_hold, {"hold": text(), "card": text(*CARDS)}),
)
