"""Scripted expert of ticketmaster: find the event, choose seats, hold them, pay."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a ticketmaster task."""
    goal = goal_of(task)
    if goal.text("kind") == "buy":
        dated = {"date": goal.text("date")} if goal.text("date") else {}
        events = yield call("search_events", query=goal.text("query"), **dated)
        event = first_row(events).text("event")
        narrowed = {"section": goal.text("section")} if goal.text("section") else {}
        seats = yield call("list_seats", event=event, **narrowed)
        seat = first_row(seats).text("seat")
        result = yield call("hold_seats", seat=seat, count=goal.number("count"))
    else:
        result = yield call("list_holds", fan=goal.text("fan"))
    hold = first_row(result).text("hold")
    if goal.text("kind") == "resize":
        yield call("change_hold", hold=hold, count=goal.number("count"))
    yield call("pay_hold", hold=hold, card=goal.text("card"))
