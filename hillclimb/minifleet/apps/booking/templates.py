"""Booking's requests: stays chosen by price, rating or name; changed and cancelled bookings.

Stays last 2 to 5 nights, so that an agent with the habit of booking one night always fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hillclimb.minifleet.framework.changes import deleted, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hotels:
    """A city of three hotels: the cheapest is not the best rated."""

    city: str
    rows: list[Row]
    cheapest: Row
    best: Row


def _hotels(draw: TaskDraw) -> _Hotels:
    city, elsewhere = draw.some(draw.pools.cities, 2)
    ids, names = draw.ids("h", 4), draw.some(draw.pools.hotels, 4)
    prices = sorted(draw.numbers(4))
    ratings = [draw.number(1, 3), 5, 4, 5]
    rows: list[Row] = [
        {"id": row_id, "name": name, "city": city, "price": price, "rating": rating}
        for row_id, name, price, rating in zip(ids, names, prices, ratings, strict=True)
    ]
    rows[3]["city"] = elsewhere
    return _Hotels(city=city, rows=draw.shuffled(rows), cheapest=rows[0], best=rows[1])


def _rooms(draw: TaskDraw, hotels: list[Row], guests: int) -> list[Row]:
    """Four rooms a hotel, in every one: too small, taken (the first id), fitting, larger."""
    numbers = draw.numbers(4 * len(hotels))
    beds = (guests, guests - 1, guests, guests + 1)
    return [
        {"id": f"r{numbers[4 * at + room]}", "hotel": hotel["id"], "beds": beds[room]}
        for at, hotel in enumerate(hotels)
        for room in range(4)
    ]


def _stay(choice: str, when: str, *, mine: bool) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests for a stay; `choice`: price, rating or name; `when`: date, today, tomorrow."""

    def build(draw: TaskDraw) -> FilledTemplate:
        hotels, guests = _hotels(draw), draw.number(2, 4)
        target = {"price": hotels.cheapest, "rating": hotels.best}.get(choice)
        target = target or hotels.rows[draw.number(0, 3)]
        rooms = _rooms(draw, hotels.rows, guests)
        user, other, third = draw.some(draw.pools.people, 3)
        guest = user if mine else other
        date = {"today": draw.today, "tomorrow": draw.tomorrow}.get(when) or draw.later()
        nights = draw.number(2, 5)
        occupied = [room["id"] for room in rooms[::4]]
        bookings = [
            _booking(draw, booking_id, room, third)
            for booking_id, room in zip(draw.ids("b", len(occupied)), occupied, strict=True)
        ]
        fitting = [
            room["id"]
            for room in rooms
            if room["hotel"] == target["id"]
            and int(room["beds"]) >= guests
            and room["id"] not in occupied
        ]
        query = target["name"] if choice == "name" else hotels.city
        sort = "rating" if choice == "rating" else "price"
        return FilledTemplate(
            user=user,
            words={
                "place": query,
                "who": "me" if mine else guest,
                "guests": guests,
                "nights": nights,
                "from": f"from {when if when != 'date' else date}",
            },
            tables={"hotels": hotels.rows, "rooms": draw.shuffled(rooms), "bookings": bookings},
            goal={
                "kind": "stay",
                "query": query,
                "sort": sort,
                "guest": guest,
                "guests": guests,
                "date": date,
                "nights": nights,
            },
            changes=[
                inserted(
                    "bookings", room={"any": [*fitting]}, guest=guest, date=date, nights=nights
                )
            ],
        )

    return build


def _existing(kind: str, *, mine: bool) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests about the one booking a guest has; `kind`: change or cancel."""

    def build(draw: TaskDraw) -> FilledTemplate:
        hotels = _hotels(draw)
        rooms = _rooms(draw, hotels.rows, 2)
        people = draw.some(draw.pools.people, 3)
        guest = people[0] if mine else people[1]
        bookings = [
            _booking(draw, booking_id, room["id"], name)
            for booking_id, room, name in zip(draw.ids("b", 3), rooms, people, strict=False)
        ]
        target = next(row for row in bookings if row["guest"] == guest)
        nights = draw.number(2, 5)
        if target["nights"] == nights:
            target["nights"] = nights + 1
        change = updated("bookings", target["id"], nights=nights)
        return FilledTemplate(
            user=people[0],
            words={"whose": "my" if mine else f"{guest}'s", "nights": nights},
            tables={"hotels": hotels.rows, "rooms": rooms, "bookings": draw.shuffled(bookings)},
            goal={"kind": kind, "guest": guest, "nights": nights},
            changes=[change if kind == "change" else deleted("bookings", target["id"])],
        )

    return build


def _booking(draw: TaskDraw, booking_id: str, room: str | int, guest: str) -> Row:
    nights = draw.number(1, 5)
    return {"id": booking_id, "room": room, "guest": guest, "date": draw.later(), "nights": nights}


_CHOICE: Mapping[str, tuple[str, str, str]] = {
    "price": ("the cheapest hotel in {place}", "the lowest price in {place}", "cheapest"),
    "rating": ("the best rated hotel in {place}", "the top rated hotel in {place}", "best"),
    "name": ("hotel {place}", "the {place} hotel", "named"),
}


def _seen_stay(choice: str, when: str, *, mine: bool, held_out: bool = False) -> Template:
    hotel, same_hotel, name = _CHOICE[choice]
    return Template(
        name=f"{name}_{when}_{'mine' if mine else 'guest'}",
        difficulty=3 if when == "tomorrow" else 2,
        wordings=(
            f"Book {hotel} for {{who}}, {{guests}} guests, {{nights}} nights {{from}}.",
            f"Reserve {{nights}} nights at {hotel} for {{who}} {{from}}, {{guests}} guests.",
            f"For {{who}}: {same_hotel}, {{nights}} nights {{from}}, room for {{guests}} guests.",
        ),
        build=_stay(choice, when, mine=mine),
        held_out=held_out,
    )


_STAYS = (
    _seen_stay("price", "date", mine=False),
    _seen_stay("price", "date", mine=True),
    _seen_stay("price", "today", mine=True),
    _seen_stay("price", "tomorrow", mine=False),
    _seen_stay("rating", "date", mine=False),
    _seen_stay("rating", "date", mine=True),
    _seen_stay("rating", "today", mine=False),
    _seen_stay("name", "date", mine=False),
    _seen_stay("name", "today", mine=True),
    _seen_stay("name", "tomorrow", mine=True),
    _seen_stay("rating", "tomorrow", mine=True, held_out=True),
    _seen_stay("name", "today", mine=False, held_out=True),
)

TEMPLATES: tuple[Template, ...] = (
    *_STAYS,
    Template(
        name="change_guest",
        difficulty=1,
        wordings=(
            "Change {whose} booking to {nights} nights.",
            "Make {whose} booking {nights} nights long.",
            "{whose} booking should be {nights} nights.",
        ),
        build=_existing("change", mine=False),
    ),
    Template(
        name="change_mine",
        difficulty=2,
        wordings=(
            "Change {whose} booking to {nights} nights.",
            "Make {whose} booking {nights} nights long.",
        ),
        build=_existing("change", mine=True),
    ),
    Template(
        name="cancel_guest",
        difficulty=1,
        wordings=("Cancel {whose} booking.", "Delete {whose} booking."),
        build=_existing("cancel", mine=False),
    ),
    Template(
        name="cheapest_reworded",
        difficulty=2,
        wordings=(
            "{who} needs a cheap stay in {place}: {guests} guests, {nights} nights {from}.",
            "Find {who} a bed in {place} at the lowest price {from}, {nights} nights, "
            "{guests} guests.",
        ),
        build=_stay("price", "date", mine=False),
        held_out=True,
    ),
    Template(
        name="change_reworded",
        difficulty=2,
        wordings=("{whose} stay is now {nights} nights.", "Set {whose} booking: {nights} nights."),
        build=_existing("change", mine=False),
        held_out=True,
    ),
    Template(
        name="cancel_mine",
        difficulty=2,
        wordings=("Cancel {whose} booking.", "Delete {whose} booking."),
        build=_existing("cancel", mine=True),
        held_out=True,
    ),
)
