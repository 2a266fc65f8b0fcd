"""Scripted expert of reddit: join where the task says so, find or create the post, then act."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.app import ExpertRun, call, first_row, goal_of


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a reddit task."""
    goal = goal_of(task)
    acts, pick, community = goal.text("acts").split(","), goal.text("pick"), goal.text("community")
    if "join" in acts:
        yield call("join", community=community)
    if pick == "create":
        result = yield call("create_post", community=community, title=goal.text("title"))
    elif pick in ("top", "new"):
        result = yield call("search_posts", community=community, sort=pick)
    else:
        result = yield call("search_posts", community=community, query=goal.text("query"))
    post = first_row(result).text("post")
    if "upvote" in acts:
        yield call("upvote", post=post)
    if "comment" in acts:
        yield call("comment", post=post, text=goal.text("text"))
    if "flair" in acts:
        yield call("set_flair", post=post, flair=goal.text("flair"))
