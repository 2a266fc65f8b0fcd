"""Scripted expert of outlook: look up the mail, then the address, then act."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil an outlook task."""
    goal = goal_of(task)
    acts = goal.text("acts").split(",")
    mail = sender = ""
    if {"reply", "move", "forward"} & set(acts):
        row = first_row((yield call("find_mails", query=goal.text("query"))))
        mail, sender = row.text("mail"), row.text("from")
    for act in acts:
        if act == "move":
            yield call("move_mail", mail=mail, folder=goal.text("folder"))
            continue
        if act == "reply":
            yield call("send_mail", to=sender, text=goal.text("text"))
            continue
        name = goal.text("second" if act == "send_second" else "name")
        address = first_row((yield call("find_contact", name=name))).text("address")
        if act == "forward":
            yield call("forward_mail", mail=mail, to=address)
        elif act == "event":
            date = goal.text("date")
            yield call("add_event", title=goal.text("title"), date=date, guest=address)
        else:
            yield call("send_mail", to=address, text=goal.text("text"))
