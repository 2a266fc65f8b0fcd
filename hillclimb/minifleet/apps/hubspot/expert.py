"""Scripted expert of hubspot: find people and deals, then set, log and move in order."""

from __future__ import annotations

from collections.abc import Generator

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.apps.hubspot.tools import KINDS, STAGES
from hillclimb.minifleet.framework.app import ExpertRun, all_rows, call, first_row, goal_of
from hillclimb.minifleet.framework.world import Fields


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a hubspot task."""
    goal = goal_of(task)
    acts, contact, rep = goal.text("acts").split(","), "", ""
    if "contact" in acts or "merge" in acts:
        contact = yield from _contact(goal, merges="merge" in acts)
    if acts == ["merge"]:
        return
    deal = first_row((yield call("find_deals", query=goal.text("query")))).text("deal")
    if "owner" in acts:
        rep = first_row((yield call("list_reps"))).text("rep")
    for act in acts:
        if act == "contact":
            yield call("set_deal", deal=deal, contact=contact)
        elif act == "owner":
            yield call("set_deal", deal=deal, owner=rep)
        elif act != "merge":
            yield _step(act, deal, goal)


def _contact(goal: Fields, *, merges: bool) -> Generator[ToolCall, ToolResult, str]:
    """Yield the calls that find a contact, and merge its duplicate; return its id."""
    contacts = all_rows((yield call("find_contacts", query=goal.text("name"))))
    here = [row for row in contacts if row.text("company") == goal.text("firm")]
    here.sort(key=lambda row: row.text("email") != goal.text("email"))
    contact = here[0].text("contact")
    if merges:
        yield call("merge_contacts", keep=contact, drop=here[1].text("contact"))
    return contact


def _step(act: str, deal: str, goal: Fields) -> ToolCall:
    if act in KINDS:
        return call("log_activity", deal=deal, kind=act, text=goal.text("text"))
    if act in STAGES:
        return call("move_deal", deal=deal, stage=act)
    return call("set_deal", deal=deal, amount=goal.number("amount"))
