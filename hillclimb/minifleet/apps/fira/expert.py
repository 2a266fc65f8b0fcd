"""Scripted expert of fira: clear the way, find or create the ticket, then act on it."""

from __future__ import annotations

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from hillclimb.minifleet.apps.fira.tools import BACKLOG, DOING, DONE, TESTING
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of
from hillclimb.minifleet.framework.world import Fields

_STATUS_AFTER = {"start": DOING, "test": TESTING, "finish": DONE}


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a fira task."""
    goal = goal_of(task)
    acts = goal.text("acts").split(",")
    if goal.text("other"):
        yield from _clear_the_way(goal, makes_room="make_room" in acts)
    sprint, points, ticket, blocker = goal.text("sprint"), goal.number("points"), "", ""
    if goal.text("kind") == "find":
        row = first_row((yield call("find_tickets", query=goal.text("title"))))
        ticket, points, blocker = row.text("ticket"), row.number("points"), row.text("blocker")
    if "roomiest" in acts:
        sprint = first_row((yield call("list_sprints", points=points))).text("sprint")
    if goal.text("kind") == "create":
        title, epic = goal.text("title"), goal.text("epic")
        created = yield call("create_ticket", title=title, epic=epic, points=points)
        ticket = first_row(created).text("ticket")
    if "unblock" in acts:
        yield call("move_ticket", ticket=blocker, status=DONE)
    for act in acts:
        step = _step(act, ticket, sprint, goal)
        if step is not None:
            yield step


def _clear_the_way(goal: Fields, *, makes_room: bool) -> ExpertRun:
    """Yield the calls that send another ticket away first."""
    other = first_row((yield call("find_tickets", query=goal.text("other")))).text("ticket")
    if makes_room:
        yield call("plan_ticket", ticket=other, sprint=BACKLOG)
    else:
        yield call("move_ticket", ticket=other, status=TESTING)


def _step(act: str, ticket: str, sprint: str, goal: Fields) -> ToolCall | None:
    """Return the call for one act on the ticket itself; None for acts done before."""
    if act in ("into", "roomiest"):
        return call("plan_ticket", ticket=ticket, sprint=sprint)
    if act == "log":
        hours, date = goal.number("hours"), goal.text("date")
        return call("log_work", ticket=ticket, hours=hours, date=date)
    if act in _STATUS_AFTER:
        return call("move_ticket", ticket=ticket, status=_STATUS_AFTER[act])
    return None
