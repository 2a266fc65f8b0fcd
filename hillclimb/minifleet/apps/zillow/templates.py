"""Zillow's requests: tours in free slots, loans and the offers they allow, searches to save."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from hillclimb.minifleet.apps.zillow.scene import (
    ZillowScene,
    free_key,
    free_slots,
    lenders,
    scene,
    tables,
    tour,
)
from hillclimb.minifleet.apps.zillow.tools import SLOTS
from hillclimb.minifleet.framework.changes import Change, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row

_HOMES = {"cheapest": (0,), "newest": (1,), "dear": (5,), "address": (0, 1, 2, 4)}
"""Homes of a scene that a request may target; those of an address cost less than 400 thousand."""
_BY = {"cheapest": "city", "newest": "alerts"}


def _target(draw: TaskDraw, market: ZillowScene, which: str) -> Row:
    return market.homes[draw.one(_HOMES[which])]


def _goal(market: ZillowScene, which: str, home: Row, *acts: str) -> dict[str, JsonValue]:
    by = _BY.get(which, "address")
    return {
        "acts": ",".join(acts),
        "by": by,
        "query": market.city if by == "city" else home["address"],
        "city": market.city,
        "beds": market.beds,
        "limit": market.limit,
    }


def _words(market: ZillowScene, home: Row, **more: str | int) -> dict[str, str | int]:
    place = {"address": home["address"], "city": market.city}
    return {**place, "beds": market.beds, "limit": market.limit, **more}


def _saved(draw: TaskDraw, market: ZillowScene, *, is_there: bool) -> list[Row]:
    """Return the user's saved search where the request is not to save it."""
    row: Row = {"id": draw.ids("q", 1)[0], "buyer": market.user, "city": market.city}
    return [{**row, "beds": market.beds, "price": market.limit}] if is_there else []


def _tour(
    which: str, slot: str, when: str = "date", *, saves: bool = False, moves: bool = False
) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests for a tour; `which`: address, cheapest or newest (of the search alerts).

    `slot`: at (a given free one) or first (the first free one); `when`: date or tomorrow;
    `saves`: the search is yet to be saved; `moves`: the user has a tour of the home at another
    time.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        market = scene(draw)
        home = _target(draw, market, which)
        date = draw.tomorrow if when == "tomorrow" else draw.later()
        tours, free = free_slots(draw, market, home, date)
        chosen = free[0] if slot == "first" else draw.one(free)
        change = inserted("tours", home=home["id"], buyer=market.user, date=date, slot=chosen)
        if moves:
            key = free_key(draw, "t", tours)
            before = next(each for each in SLOTS if each != chosen)
            tours.append(tour(key, home["id"], market.user, (draw.today, before)))
            change = updated("tours", key, date=date, slot=chosen)
        saved = [inserted("searches", buyer=market.user, **market.search)] if saves else []
        searches = _saved(draw, market, is_there=which == "newest" and not saves)
        goal = _goal(market, which, home, *(["save"] if saves else []), "tour")
        named = when if when == "tomorrow" else f"on {date}"
        return FilledTemplate(
            user=market.user,
            words=_words(market, home, slot=chosen, when=named),
            tables=tables(draw, market, tours=tours, searches=searches),
            goal={**goal, "date": date, "slot": chosen if slot == "at" else ""},
            changes=[change, *saved],
        )

    return build


def _bid(which: str, how: str, *, saves: bool = False) -> Callable[[TaskDraw], FilledTemplate]:
    """Build offers; `which`: address, cheapest, newest or dear, which needs an approval first.

    `how`: below (a given price, lower than the asking price), asking, or higher (than what the
    user offered before); `saves`: the search is yet to be saved.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        market = scene(draw)
        home = _target(draw, market, which)
        price = int(home["price"]) - (0 if how == "asking" else draw.number(1, 10))
        offer: dict[str, JsonValue] = {"home": home["id"], "buyer": market.user}
        key, banks = free_key(draw, "o", []), lenders(draw, price)
        changes: list[Change] = [inserted("offers", **offer, price=price)]
        searches = _saved(draw, market, is_there=which == "newest" and not saves)
        rows = {"lenders": draw.shuffled(banks), "searches": searches}
        if how == "higher":
            before = price - draw.number(1, 9)
            mine: Row = {"home": home["id"], "buyer": market.user, "price": before}
            rows["offers"] = [{"id": key, **mine}]
            changes = [updated("offers", key, price=price)]
        acts = ["save"] if saves else []
        if saves:
            changes.append(inserted("searches", buyer=market.user, **market.search))
        if which == "dear":
            acts.append("loan")
            changes.append(inserted("approvals", lender=banks[1]["id"], amount=price))
        goal = _goal(market, which, home, *acts, "bid")
        offered_price = 0 if how == "asking" else price
        return FilledTemplate(
            user=market.user,
            words=_words(market, home, price=price),
            tables=tables(draw, market, **rows),
            goal={**goal, "price": offered_price, "lender": "", "amount": price},
            changes=changes,
        )

    return build


def _loan(*, is_named: bool) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests for an approval, from a named lender or the one with the lowest rate."""

    def build(draw: TaskDraw) -> FilledTemplate:
        market, amount = scene(draw), 10 * draw.number(25, 90)
        banks = lenders(draw, amount)
        bank = str((draw.one(banks[1:]) if is_named else banks[1])["id"])
        return FilledTemplate(
            user=market.user,
            words={"lender": bank, "amount": amount},
            tables=tables(draw, market, lenders=draw.shuffled(banks)),
            goal={"acts": "loan", "lender": bank if is_named else "", "amount": amount},
            changes=[inserted("approvals", lender=bank, amount=amount)],
        )

    return build


def _save(draw: TaskDraw) -> FilledTemplate:
    """Build requests to save a search."""
    market = scene(draw)
    home = market.homes[1]
    return FilledTemplate(
        user=market.user,
        words=_words(market, home),
        tables=tables(draw, market),
        goal=_goal(market, "newest", home, "save"),
        changes=[inserted("searches", buyer=market.user, **market.search)],
    )


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="tour_at",
        difficulty=1,
        wordings=(
            "Book a tour of {address} {when} at {slot}.",
            "I want to see {address} {when} at {slot}.",
            "Tour {address} {when}, at {slot}.",
        ),
        build=_tour("address", "at"),
    ),
    Template(
        name="tour_at_tomorrow",
        difficulty=2,
        wordings=(
            "Book a tour of {address} {when} at {slot}.",
            "I want to see {address} {when} at {slot}.",
        ),
        build=_tour("address", "at", "tomorrow"),
    ),
    Template(
        name="tour_first",
        difficulty=2,
        wordings=(
            "Book the first free tour of {address} {when}.",
            "I want to see {address} {when}, as early as possible.",
        ),
        build=_tour("address", "first"),
    ),
    Template(
        name="tour_cheapest",
        difficulty=2,
        wordings=(
            "Book a tour of the cheapest home in {city} with {beds} bedrooms {when} at {slot}.",
            "In {city}, tour the cheapest home with {beds} bedrooms {when} at {slot}.",
        ),
        build=_tour("cheapest", "at"),
    ),
    Template(
        name="tour_cheapest_first",
        difficulty=3,
        wordings=(
            "Book the first free tour of the cheapest {beds}-bedroom home in {city} {when}.",
            "Tour the cheapest home with {beds} bedrooms in {city} {when}, as early as possible.",
        ),
        build=_tour("cheapest", "first"),
    ),
    Template(
        name="move_tour",
        difficulty=2,
        wordings=(
            "Move my tour of {address} to {slot} {when}.",
            "My tour of {address} should be {when} at {slot}.",
        ),
        build=_tour("address", "at", moves=True),
    ),
    Template(
        name="tour_alert",
        difficulty=2,
        wordings=(
            "Book a tour of the newest home in my search alerts {when} at {slot}.",
            "Tour the newest home my saved search finds {when} at {slot}.",
        ),
        build=_tour("newest", "at"),
    ),
    Template(
        name="offer",
        difficulty=1,
        wordings=(
            "Offer {price} thousand for {address}.",
            "Make an offer of {price} thousand for {address}.",
            "Bid {price} thousand on {address}.",
        ),
        build=_bid("address", "below"),
    ),
    Template(
        name="offer_asking",
        difficulty=2,
        wordings=(
            "Offer the asking price for {address}.",
            "Make an offer for {address} at the price it is listed for.",
        ),
        build=_bid("address", "asking"),
    ),
    Template(
        name="offer_cheapest",
        difficulty=2,
        wordings=(
            "Offer the asking price for the cheapest home with {beds} bedrooms in {city}.",
            "In {city}, bid the asking price on the cheapest {beds}-bedroom home.",
        ),
        build=_bid("cheapest", "asking"),
    ),
    Template(
        name="raise_offer",
        difficulty=2,
        wordings=(
            "Raise my offer for {address} to {price} thousand.",
            "My offer for {address} goes up to {price} thousand.",
        ),
        build=_bid("address", "higher"),
    ),
    Template(
        name="approval",
        difficulty=1,
        wordings=(
            "Get an approval of {amount} thousand from {lender}.",
            "Have {lender} approve a loan of {amount} thousand.",
            "I need {lender} to approve {amount} thousand.",
        ),
        build=_loan(is_named=True),
    ),
    Template(
        name="approval_lowest_rate",
        difficulty=2,
        wordings=(
            "Get an approval of {amount} thousand at the lowest rate.",
            "Have the lender with the lowest rate approve {amount} thousand.",
        ),
        build=_loan(is_named=False),
    ),
    Template(
        name="approval_and_offer",
        difficulty=3,
        wordings=(
            "Get an approval of {price} thousand at the lowest rate and offer that for {address}.",
            "Offer {price} thousand for {address}; first have the lowest rate approve just that.",
        ),
        build=_bid("dear", "below"),
    ),
    Template(
        name="save_search",
        difficulty=1,
        wordings=(
            "Save a search for homes in {city} with {beds} bedrooms up to {limit} thousand.",
            "Alert me to homes in {city}: {beds} bedrooms, at most {limit} thousand.",
        ),
        build=_save,
    ),
    Template(
        name="save_and_tour",
        difficulty=3,
        wordings=(
            "Save a search ({city}, {beds} bedrooms, up to {limit} thousand) and tour its newest "
            "home {when} at {slot}.",
            "Search alert for {city}, {beds} bedrooms, at most {limit} thousand; tour its newest "
            "home {when} at {slot}.",
        ),
        build=_tour("newest", "at", saves=True),
    ),
    Template(
        name="tour_reworded",
        difficulty=1,
        wordings=("Take me to {address} {when} at {slot}.", "{slot} {when}: a tour of {address}."),
        build=_tour("address", "at"),
        held_out=True,
    ),
    Template(
        name="tour_first_tomorrow",
        difficulty=3,
        wordings=("Book the first free tour of {address} {when}.",),
        build=_tour("address", "first", "tomorrow"),
        held_out=True,
    ),
    Template(
        name="offer_reworded",
        difficulty=1,
        wordings=("{price} thousand is my offer for {address}.", "I bid {price} for {address}."),
        build=_bid("address", "below"),
        held_out=True,
    ),
    Template(
        name="offer_alert",
        difficulty=2,
        wordings=("Offer the asking price for the newest home in my search alerts.",),
        build=_bid("newest", "asking"),
        held_out=True,
    ),
    Template(
        name="save_and_offer",
        difficulty=3,
        wordings=(
            "Save a search ({city}, {beds} bedrooms, up to {limit} thousand) and offer the asking "
            "price for its newest home.",
        ),
        build=_bid("newest", "asking", saves=True),
        held_out=True,
    ),
)
