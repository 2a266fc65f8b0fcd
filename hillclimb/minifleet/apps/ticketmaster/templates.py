"""Ticketmaster's requests: events by artist, city and day; every one ends with a payment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.minifleet.apps.ticketmaster.tools import CARDS, SECTIONS
from hillclimb.minifleet.framework.changes import Change, deleted, inserted
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """Four events: the target, later one more in its city, one of its artist, one of neither."""

    events: list[Row]
    offers: list[Row]
    target: Row
    cards: list[Row]


def _scene(draw: TaskDraw, fans: list[str], when: str) -> _Scene:
    artists = draw.phrases(draw.pools.moods, draw.pools.animals, 3)
    city, elsewhere = draw.some(draw.pools.cities, 2)
    date = {"today": draw.today, "tomorrow": draw.tomorrow}.get(when)
    days = [date or draw.soon(), *draw.later_days(3)]
    ids = draw.ids("e", 4)
    places = (
        (artists[0], city),
        (artists[1], city),
        (artists[0], elsewhere),
        (artists[2], elsewhere),
    )
    events: list[Row] = [
        {"id": event, "artist": artist, "city": where, "date": day}
        for event, (artist, where), day in zip(ids, places, days, strict=True)
    ]
    numbers = iter(draw.numbers(12))
    offers: list[Row] = []
    for event in events:
        prices = draw.numbers(3)
        offers += [
            {
                "id": f"s{next(numbers)}",
                "event": event["id"],
                "section": section,
                "price": price,
                "seats": draw.number(8, 40),
            }
            for section, price in zip(draw.some(SECTIONS, 3), prices, strict=True)
        ]
    cards: list[Row] = [
        {"id": f"{fan}:{card}", "fan": fan, "card": card}
        for fan in fans
        for card in draw.some(CARDS, 2)
    ]
    return _Scene(events=draw.shuffled(events), offers=offers, target=events[0], cards=cards)


def _buy(by: str, seats: str, when: str = "next") -> Callable[[TaskDraw], FilledTemplate]:
    """Build purchases; `by`: artist or city; `seats`: cheapest or section.

    `when`: next (the first event found), date, today or tomorrow.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        fans = draw.some(draw.pools.people, 3)
        scene = _scene(draw, fans, when)
        mine = [row for row in scene.offers if row["event"] == scene.target["id"]]
        offer = min(mine, key=lambda row: int(row["price"]))
        if seats == "section":
            offer = mine[draw.number(0, 2)]
        count, card = draw.number(2, 5), str(scene.cards[draw.number(0, 1)]["card"])
        date = str(scene.target["date"])
        goal: dict[str, JsonValue] = {
            "kind": "buy",
            "query": scene.target[by],
            "date": "" if when == "next" else date,
            "section": offer["section"] if seats == "section" else "",
            "count": count,
            "card": card,
        }
        other = [row for row in scene.offers if row is not offer]
        return FilledTemplate(
            user=fans[0],
            words={
                "what": scene.target[by],
                "when": when if when in ("today", "tomorrow") else f"on {date}",
                "section": offer["section"],
                "count": count,
                "card": card,
            },
            tables=_tables(scene, holds=[_hold(draw, other[0], fans[1])]),
            goal=goal,
            changes=[_order(offer, count, fans[0], card)],
        )

    return build


def _pay(*, resize: bool) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests about the user's one open hold, among other fans' holds."""

    def build(draw: TaskDraw) -> FilledTemplate:
        fans = draw.some(draw.pools.people, 3)
        scene = _scene(draw, fans, "next")
        ids, offers = draw.ids("k", 3), draw.shuffled(scene.offers)
        holds: list[Row] = [
            {"id": hold, "seat": offer["id"], "count": draw.number(2, 4), "fan": fan}
            for hold, offer, fan in zip(ids, offers, fans, strict=False)
        ]
        card, count = str(scene.cards[draw.number(0, 1)]["card"]), int(holds[0]["count"])
        if resize:
            count = next(number for number in draw.digits(2, 5) if number != count)
        return FilledTemplate(
            user=fans[0],
            words={"count": count, "card": card},
            tables=_tables(scene, holds=draw.shuffled(holds)),
            goal={
                "kind": "resize" if resize else "pay",
                "fan": fans[0],
                "count": count,
                "card": card,
            },
            changes=[deleted("holds", holds[0]["id"]), _order(offers[0], count, fans[0], card)],
        )

    return build


def _hold(draw: TaskDraw, offer: Row, fan: str) -> Row:
    return {"id": draw.ids("k", 1)[0], "seat": offer["id"], "count": 2, "fan": fan}


def _order(offer: Row, count: int, fan: str, card: str) -> Change:
    return inserted("orders", seat=offer["id"], count=count, fan=fan, card=card)


def _tables(scene: _Scene, holds: list[Row]) -> dict[str, list[Row]]:
    return {
        "events": scene.events,
        "offers": scene.offers,
        "holds": holds,
        "orders": [],
        "cards": scene.cards,
    }


_CHEAPEST = (
    "Buy {count} of the cheapest seats for WHERE with {card}.",
    "Get me {count} cheapest seats for WHERE, pay with {card}.",
)
_SECTION = (
    "Buy {count} {section} seats for WHERE with {card}.",
    "Get me {count} seats in the {section} for WHERE, pay with {card}.",
)
_WHERE = {
    ("artist", "next"): "the next show of {what}",
    ("city", "next"): "the next show in {what}",
}


def _wordings(by: str, seats: str, when: str = "next") -> tuple[str, ...]:
    patterns = _CHEAPEST if seats == "cheapest" else _SECTION
    dated = "{what} {when}" if by == "artist" else "the show in {what} {when}"
    where = _WHERE.get((by, when), dated)
    return tuple(pattern.replace("WHERE", where) for pattern in patterns)


def _purchase(by: str, seats: str, when: str = "next", *, held_out: bool = False) -> Template:
    return Template(
        name=f"{by}_{seats}_{when}",
        difficulty=3 if when == "tomorrow" else 2,
        wordings=_wordings(by, seats, when),
        build=_buy(by, seats, when),
        held_out=held_out,
    )


TEMPLATES: tuple[Template, ...] = (
    _purchase("artist", "cheapest"),
    _purchase("artist", "section"),
    _purchase("artist", "cheapest", "date"),
    _purchase("artist", "section", "today"),
    _purchase("artist", "cheapest", "tomorrow"),
    _purchase("city", "cheapest"),
    _purchase("city", "section"),
    _purchase("city", "section", "date"),
    _purchase("city", "cheapest", "today"),
    _purchase("city", "section", "tomorrow"),
    Template(
        name="pay_my_hold",
        difficulty=1,
        wordings=(
            "Pay my open hold with {card}.",
            "Pay the seats I hold with {card}.",
            "Use {card} to pay my hold.",
        ),
        build=_pay(resize=False),
    ),
    Template(
        name="resize_my_hold",
        difficulty=3,
        wordings=(
            "Change my hold to {count} seats and pay it with {card}.",
            "Make my open hold {count} seats, then pay with {card}.",
        ),
        build=_pay(resize=True),
    ),
    _purchase("city", "cheapest", "tomorrow", held_out=True),
    _purchase("artist", "section", "date", held_out=True),
    Template(
        name="artist_reworded",
        difficulty=2,
        wordings=(
            "{count} cheapest seats to see {what} next, on my {card}.",
            "I want to see {what} next: {count} seats, the cheapest, pay with {card}.",
        ),
        build=_buy("artist", "cheapest"),
        held_out=True,
    ),
    Template(
        name="pay_reworded",
        difficulty=1,
        wordings=("My {card} pays for my hold.", "Settle my open hold with {card}."),
        build=_pay(resize=False),
        held_out=True,
    ),
)
