"""Booking's tools: hotels have rooms, guests have bookings.

Rules: a room must be free to be booked and then no longer is; stays are 1 to 9 nights and start
today or later; a cancelled booking frees its room.
"""

from __future__ import annotations

from datetime import date

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import integer, text
from hillclimb.minifleet.framework.world import Fields, Row, RuleBroken, World, matches, same

MAX_NIGHTS = 9


def search_hotels(world: World, args: Fields) -> str:
    """Return the hotels of a city or name, cheapest or best rated first."""
    by_rating = args.text("sort") == "rating"
    query = args.text("query")
    hotels = [row for row in world.rows("hotels") if matches(query, row["name"], row["city"])]
    hotels.sort(key=lambda row: -int(row["rating"]) if by_rating else int(row["price"]))
    return lines(
        {"hotel": row["id"], "name": row["name"], "price": row["price"], "rating": row["rating"]}
        for row in hotels
    )


def list_rooms(world: World, args: Fields) -> str:
    """Return the free rooms of a hotel that sleep that many, the smallest first."""
    hotel = world.get("hotels", args.text("hotel"), "hotel")
    guests = args.number("guests")
    rooms = [
        row
        for row in world.rows("rooms", hotel=hotel["id"])
        if int(row["beds"]) >= guests and _is_free(world, row)
    ]
    rooms.sort(key=lambda row: int(row["beds"]))
    return lines(({"room": row["id"], "beds": row["beds"]} for row in rooms), empty="no free room")


def book_room(world: World, args: Fields) -> str:
    """Book a free room for a guest."""
    room = world.get("rooms", args.text("room"), "room")
    if not _is_free(world, room):
        raise RuleBroken("room is not free")
    start = _iso_date(args.text("date"))
    if start < world.today:
        raise RuleBroken("date is in the past")
    nights = _nights(args)
    guest = args.text("guest").strip()
    if not guest:
        raise RuleBroken("guest is empty")
    booking = world.add("bookings", "b", room=room["id"], guest=guest, date=start, nights=nights)
    return line(booking=booking, status="booked")


def list_bookings(world: World, args: Fields) -> str:
    """Return a guest's bookings."""
    return lines(
        {"booking": row["id"], "room": row["room"], "date": row["date"], "nights": row["nights"]}
        for row in world.rows("bookings")
        if same(row["guest"], args.text("guest"))
    )


def change_booking(world: World, args: Fields) -> str:
    """Set the number of nights of a booking."""
    booking = world.get("bookings", args.text("booking"), "booking")
    booking["nights"] = _nights(args)
    return line(booking=booking["id"], status="changed")


def cancel_booking(world: World, args: Fields) -> str:
    """Delete a booking, which frees its room."""
    booking = world.get("bookings", args.text("booking"), "booking")
    del world.tables["bookings"][str(booking["id"])]
    return line(booking=booking["id"], status="cancelled")


def _is_free(world: World, room: Row) -> bool:
    return not world.rows("bookings", room=room["id"])


def _nights(args: Fields) -> int:
    nights = args.number("nights")
    if not 1 <= nights <= MAX_NIGHTS:
        raise RuleBroken(f"nights must be 1 to {MAX_NIGHTS}")
    return nights


def _iso_date(value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise RuleBroken("date must be like 2026-03-14") from None


TOOLS: tuple[Tool, ...] = (
    read_only_tool(
        "search_hotels",
        "by city or name",
        search_hotels,
        {"query": text(), "sort": text("price", "rating")},
    ),
    read_only_tool("list_rooms", "free rooms", list_rooms, {"hotel": text(), "guests": integer()}),
    tool(
        "book_room",
        "book",
        book_room,
        {"room": text(), "guest": text(), "date": text(), "nights": integer()},
    ),
    read_only_tool("list_bookings", "of a guest", list_bookings, {"guest": text()}),
    tool(
        "change_booking",
        "set nights",
        change_booking,
        {"booking": text(), "nights": integer()},
    ),
    tool("cancel_booking", "cancel", cancel_booking, {"booking": text()}),
)
