"""Scripted expert of zillow: find the home, list slots or lenders, then tour or offer."""

from __future__ import annotations

from collections.abc import Generator

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of
from hillclimb.minifleet.framework.world import Fields


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a zillow task."""
    goal = goal_of(task)
    acts = goal.text("acts").split(",")
    if "loan" in acts:
        lender, amount = goal.text("lender"), goal.number("amount")
        if not lender:
            lender = first_row((yield call("list_lenders", amount=amount))).text("lender")
        yield call("get_approval", lender=lender, amount=amount)
    if "save" in acts:
        city, beds, price = goal.text("city"), goal.number("beds"), goal.number("limit")
        yield call("save_search", city=city, beds=beds, price=price)
    if "tour" in acts or "bid" in acts:
        home = first_row((yield _search(goal)))
        yield from _commit(acts, home, goal)


def _search(goal: Fields) -> ToolCall:
    if goal.text("by") == "alerts":
        return call("list_alerts")
    sized = {"beds": goal.number("beds")} if goal.text("by") == "city" else {}
    return call("find_homes", query=goal.text("query"), **sized)


def _commit(acts: list[str], home: Fields, goal: Fields) -> Generator[ToolCall, ToolResult, None]:
    """Yield the calls that book a tour of the home or make an offer for it."""
    key = home.text("home")
    if "bid" in acts:
        price = goal.number("price") or home.number("price")
        yield call("make_offer", home=key, price=price)
        return
    slot, date = goal.text("slot"), goal.text("date")
    if not slot:
        slot = first_row((yield call("list_slots", home=key, date=date))).text("slot")
    yield call("book_tour", home=key, date=date, slot=slot)
