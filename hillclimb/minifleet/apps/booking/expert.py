"""Scripted expert of booking: search, look at rooms, book."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a booking task."""
    goal = goal_of(task)
    if goal.text("kind") == "stay":
        hotels = yield call("search_hotels", query=goal.text("query"), sort=goal.text("sort"))
        hotel = first_row(hotels).text("hotel")
        rooms = yield call("list_rooms", hotel=hotel, guests=goal.number("guests"))
        yield call(
            "book_room",
            room=first_row(rooms).text("room"),
            guest=goal.text("guest"),
            date=goal.text("date"),
            nights=goal.number("nights"),
        )
        return
    bookings = yield call("list_bookings", guest=goal.text("guest"))
    booking = first_row(bookings).text("booking")
    if goal.text("kind") == "change":
        yield call("change_booking", booking=booking, nights=goal.number("nights"))
    else:
        yield call("cancel_booking", booking=booking)
