"""Zillow's tools: agents sell homes, buyers tour them, save searches, get approvals, make offers.

Rules: an agent and a buyer are at one place at a time, so a tour needs a slot in which both are
free; a second tour of a home moves the first. Offers start at 90% of the asking price, a second
one must be higher, and from 400 thousand on the buyer's approval must cover the offer. A lender
approves up to its limit; a new approval replaces the old one. Homes under contract take neither
tours nor offers. A buyer saves three different searches at most. Prices are in thousands.
"""

from __future__ import annotations

from datetime import date

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

SLOTS = ("09:00", "11:00", "14:00", "16:00")
FOR_SALE, UNDER_CONTRACT = "for sale", "under contract"
NEEDS_APPROVAL = 400
"""Offers of so much or more (thousands) rest on a lender's approval."""
MAX_PRICE = 9_999
MAX_SEARCHES = 3
MAX_BEDS = 9


def find_homes(world: World, args: Fields) -> str:
    """Return the homes for sale of an address or city, the cheapest first."""
    query = args.text("query")
    beds = args.number("beds") if "beds" in args else 0
    homes = [
        row
        for row in world.rows("homes", status=FOR_SALE)
        if matches(query, row["address"], row["city"]) and int(row["beds"]) >= beds
    ]
    homes.sort(key=lambda row: int(row["price"]))
    return lines(_summary(row) for row in homes)


def save_search(world: World, args: Fields) -> str:
    """Save a search of the user's; `list_alerts` shows what it finds."""
    city = next((r["city"] for r in world.rows("homes") if same(r["city"], args.text("city"))), "")
    beds, price = args.number("beds"), args.number("price")
    if not city:
        raise RuleBroken(f"no homes in {quoted(args.text('city'))}")
    if not 1 <= beds <= MAX_BEDS or not 1 <= price <= MAX_PRICE:
        raise RuleBroken(f"beds must be 1 to {MAX_BEDS}, price 1 to {MAX_PRICE}")
    search: Row = {"buyer": world.user, "city": city, "beds": beds, "price": price}
    if world.rows("searches", **search):
        raise RuleBroken("you saved this search before")
    if len(world.rows("searches", buyer=world.user)) >= MAX_SEARCHES:
        raise RuleBroken(f"you can have {MAX_SEARCHES} saved searches, and you have them")
    return line(search=world.add("searches", "q", **search), status="saved")


def list_alerts(world: World, _args: Fields) -> str:
    """Return the homes for sale that the user's saved searches find, the newest first."""
    searches = world.rows("searches", buyer=world.user)
    homes = [
        row
        for row in world.rows("homes", status=FOR_SALE)
        if any(_matches_search(row, search) for search in searches)
    ]
    homes.sort(key=lambda row: int(row["days"]))
    return lines((_summary(row) for row in homes), empty="your saved searches find no home")


def list_slots(world: World, args: Fields) -> str:
    """Return when a home can be toured on a day: its agent and the user are free."""
    home, day = _home(world, args), _coming_day(world, args)
    free = [slot for slot in SLOTS if not _conflict(world, home, day, slot)]
    return lines(({"slot": slot} for slot in free), empty="no free slot")


def book_tour(world: World, args: Fields) -> str:
    """Book a tour, or move the user's tour of the same home."""
    home, day, slot = _home(world, args), _coming_day(world, args), args.text("slot")
    conflict = _conflict(world, home, day, slot)
    if conflict:
        raise RuleBroken(conflict)
    mine = world.rows("tours", home=home["id"], buyer=world.user)
    if mine:
        mine[0].update(date=day, slot=slot)
        return line(tour=mine[0]["id"], status="moved")
    booked: Row = {"home": home["id"], "buyer": world.user, "date": day, "slot": slot}
    return line(tour=world.add("tours", "t", **booked), status="booked")


def list_lenders(world: World, args: Fields) -> str:
    """Return the lenders that lend so much, the lowest rate (hundredths of a percent) first."""
    amount = args.number("amount")
    lenders = [row for row in world.rows("lenders") if int(row["limit"]) >= amount]
    lenders.sort(key=lambda row: int(row["rate"]))
    return lines(
        ({"lender": row["id"], "rate": row["rate"]} for row in lenders), empty="nobody lends that"
    )


def get_approval(world: World, args: Fields) -> str:
    """Get a lender's approval for a loan, in place of the one before."""
    lender, amount = world.get("lenders", args.text("lender"), "lender"), args.number("amount")
    if not 1 <= amount <= int(lender["limit"]):
        raise RuleBroken(f"{lender['id']} lends 1 to {lender['limit']} thousand")
    world.put("approvals", world.user, lender=lender["id"], amount=amount)
    return line(lender=lender["id"], status="approved")


def make_offer(world: World, args: Fields) -> str:
    """Offer a price for a home, or raise the user's offer."""
    home, price = _home(world, args), args.number("price")
    floor = -(-9 * int(home["price"]) // 10)
    if not floor <= price <= MAX_PRICE:
        raise RuleBroken(f"offers for it start at {floor} thousand")
    approval = world.tables["approvals"].get(world.user)
    if price >= NEEDS_APPROVAL and (approval is None or int(approval["amount"]) < price):
        raise RuleBroken(f"offers of {NEEDS_APPROVAL} or more need an approval that covers them")
    mine = world.rows("offers", home=home["id"], buyer=world.user)
    if not mine:
        offer: Row = {"home": home["id"], "buyer": world.user, "price": price}
        return line(offer=world.add("offers", "o", **offer), status="made")
    if price <= int(mine[0]["price"]):
        raise RuleBroken(f"you offered {mine[0]['price']} before: a new offer must be higher")
    mine[0]["price"] = price
    return line(offer=mine[0]["id"], status="raised")


def _summary(home: Row) -> Row:
    return {
        "home": home["id"],
        "address": home["address"],
        "price": home["price"],
        "beds": home["beds"],
    }


def _matches_search(home: Row, search: Row) -> bool:
    fits = int(home["beds"]) >= int(search["beds"]) and int(home["price"]) <= int(search["price"])
    return fits and home["city"] == search["city"]


def _home(world: World, args: Fields) -> Row:
    home = world.get("homes", args.text("home"), "home")
    if home["status"] != FOR_SALE:
        raise RuleBroken(f"home is {home['status']}")
    return home


def _coming_day(world: World, args: Fields) -> str:
    try:
        day = date.fromisoformat(args.text("date")).isoformat()
    except ValueError:
        raise RuleBroken("date must be like 2026-03-14") from None
    if day < world.today:
        raise RuleBroken("date is in the past")
    return day


def _conflict(world: World, home: Row, day: str, slot: str) -> str:
    """Say who is elsewhere at that time, or return "" when agent and user are both free."""
    for tour in world.rows("tours", date=day, slot=slot):
        is_mine = tour["buyer"] == world.user
        if is_mine and tour["home"] == home["id"]:
            continue
        if is_mine:
            return f"you tour {tour['home']} then: list_slots shows what is free"
        if world.tables["homes"][str(tour["home"])]["agent"] == home["agent"]:
            return f"{home['agent']} shows {tour['home']} then: list_slots shows what is free"
    return ""


TOOLS: tuple[Tool, ...] = (
    read_only_tool(
        "find_homes", "by address or city", find_homes, {"query": text()}, beds=integer()
    ),
    tool(
        "save_search",
        "max price, min beds",
        save_search,
        {"city": text(), "beds": integer(), "price": integer()},
    ),
    read_only_tool("list_alerts", "found, newest first", list_alerts, {}),
    read_only_tool("list_slots", "free for a tour", list_slots, {"home": text(), "date": text()}),
    tool(
        "book_tour",
        "book or move",
        book_tour,
        {"home": text(), "date": text(), "slot": text(*SLOTS)},
    ),
    read_only_tool("list_lenders", "lowest rate first", list_lenders, {"amount": integer()}),
    tool("get_approval", "in thousands", get_approval, {"lender": text(), "amount": integer()}),
    tool("make_offer", "in thousands", make_offer, {"home": text(), "price": integer()}),
)
