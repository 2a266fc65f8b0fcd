"""A market: six homes of two agents in two cities, other buyers' tours and offers, lenders."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.minifleet.apps.zillow.tools import FOR_SALE, NEEDS_APPROVAL, SLOTS, UNDER_CONTRACT
from hillclimb.minifleet.framework.template import TaskDraw
from hillclimb.minifleet.framework.world import Row, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class ZillowScene:
    """Start state of a zillow task. A request for `beds` in the city means the first home.

    The homes: the cheapest large enough, the newest of those below `limit`, a cheaper one that is
    too small, a cheaper one under contract, one in the other city, and a new one for more than
    400 thousand.
    """

    user: str
    rival: str
    agents: list[str]
    city: str
    beds: int
    limit: int
    homes: list[Row]

    @property
    def search(self) -> dict[str, JsonValue]:
        """The search whose newest match is the second home and whose cheapest the first."""
        return {"city": self.city, "beds": self.beds, "price": self.limit}


def scene(draw: TaskDraw) -> ZillowScene:
    """Draw a market."""
    user, rival, *agents = draw.some(draw.pools.people, 4)
    city, elsewhere = draw.some(draw.pools.cities, 2)
    streets, numbers, ids = draw.some(draw.pools.streets, 6), draw.numbers(6), draw.ids("h", 6)
    small, pending, away, cheapest, newest = sorted(draw.some(range(210, 390), 5))
    prices = (cheapest, newest, small, pending, away, draw.number(430, 880))
    days = sorted(draw.numbers(6))
    beds = draw.number(2, 4)
    homes: list[Row] = [
        {
            "id": ids[at],
            "address": f"{numbers[at]} {streets[at]}",
            "city": elsewhere if at == 4 else city,
            "price": prices[at],
            "beds": beds - 1 if at == 2 else beds + at % 2,
            "agent": agents[at % 2],
            "days": days[(3, 1, 5, 2, 4, 0)[at]],
            "status": UNDER_CONTRACT if at == 3 else FOR_SALE,
        }
        for at in range(6)
    ]
    return ZillowScene(
        user=user,
        rival=rival,
        agents=agents,
        city=city,
        beds=beds,
        limit=newest + draw.number(1, 9),
        homes=homes,
    )


def lenders(draw: TaskDraw, amount: int) -> list[Row]:
    """Return four lenders by rate: the first lends less than `amount` (thousands).

    The second is the best one, then.
    """
    rates = sorted(draw.some(range(310, 690), 4))
    limits = [amount - draw.number(10, 90), *(amount + draw.number(0, 300) for _ in range(3))]
    names = draw.some(draw.pools.lenders, 4)
    return [
        {"id": name, "rate": rate, "limit": limit}
        for name, rate, limit in zip(names, rates, limits, strict=True)
    ]


def free_slots(
    draw: TaskDraw, market: ZillowScene, home: Row, day: str
) -> tuple[list[Row], list[str]]:
    """Return tours that take two slots of a day from a home, and the slots left, in order.

    In one its agent shows another home to another buyer, in one the user tours another home.
    """
    same_agent = [row for row in _others(market, home) if row["agent"] == home["agent"]]
    other_agent = [row for row in _others(market, home) if row["agent"] != home["agent"]]
    occupied, ids = draw.some(SLOTS, 2), draw.ids("t", 2)
    other_home, own_tour = draw.one(same_agent)["id"], draw.one(other_agent)["id"]
    tours = [
        tour(ids[0], other_home, market.rival, (day, occupied[0])),
        tour(ids[1], own_tour, market.user, (day, occupied[1])),
    ]
    return tours, [slot for slot in SLOTS if slot not in occupied]


def tour(key: str, home: Scalar, buyer: str, when: tuple[str, str]) -> Row:
    """Return the row of one tour."""
    return {"id": key, "home": home, "buyer": buyer, "date": when[0], "slot": when[1]}


def free_key(draw: TaskDraw, prefix: str, rows: list[Row]) -> str:
    """Return an id that none of the rows has."""
    keys = draw.ids(prefix, len(rows) + 1)
    return next(key for key in keys if all(key != row["id"] for row in rows))


def tables(draw: TaskDraw, market: ZillowScene, **rows: list[Row]) -> dict[str, list[Row]]:
    """Return the start state: `rows`, and another buyer's saved search, approval and offer."""
    rival, searches, offers = market.rival, rows.get("searches", []), rows.get("offers", [])
    search: Row = {"city": market.city, "beds": market.beds, "price": market.limit + 10}
    bid: Row = {"home": market.homes[0]["id"], "price": market.homes[0]["price"]}
    return {
        "agents": [{"id": name} for name in market.agents],
        "homes": draw.shuffled(market.homes),
        "tours": rows.get("tours", []),
        "searches": [
            *searches,
            {"id": free_key(draw, "q", searches), "buyer": rival, **search},
        ],
        "lenders": rows.get("lenders") or lenders(draw, NEEDS_APPROVAL),
        "approvals": [{"id": rival, "lender": "", "amount": NEEDS_APPROVAL}],
        "offers": [*offers, {"id": free_key(draw, "o", offers), "buyer": rival, **bid}],
    }


def _others(market: ZillowScene, home: Row) -> list[Row]:
    return [row for row in market.homes if row is not home]
