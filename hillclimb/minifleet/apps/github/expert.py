"""Scripted expert of github: find or open the issue, then act on its number."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a github task."""
    goal = goal_of(task)
    repo, query = goal.text("repo"), goal.text("query")
    if goal.text("kind") == "open":
        result = yield call("open_issue", repo=repo, title=query)
    else:
        result = yield call("find_issues", repo=repo, query=query)
    issue = first_row(result).number("issue")
    for act in filter(None, goal.text("acts").split(",")):
        if act == "label":
            yield call("label_issue", issue=issue, label=goal.text("label"))
        elif act == "assign":
            yield call("assign_issue", issue=issue, user=goal.text("user"))
        elif act == "comment":
            yield call("comment_issue", issue=issue, text=goal.text("text"))
        else:
            yield call("close_issue", issue=issue)
