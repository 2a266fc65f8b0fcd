"""How a person would work in reddit: join if told to, find or create the post, then act."""

from __future__ import annotations

from trainer.envs.minifleet.app import ExpertRun, call, first_row, goal_of
from trainer.types import Task


def expert(task: Task) -> ExpertRun:
    """Yield the calls that fulfil a reddit task."""
    goal = goal_of(task)
    acts, pick, community = goal.text("acts").split(","), goal.text("pick"), goal.text("community")
    if "join" in acts:
        yield call("join", community=community)
    if pick == "create":
        found = yield call("create_post", community=community, title=goal.text("title"))
    elif pick in ("top", "new"):
        found = yield call("search_posts", community=community, sort=pick)
    else:
        found = yield call("search_posts", community=community, query=goal.text("query"))
    post = first_row(found).text("post")
    if "upvote" in acts:
        yield call("upvote", post=post)
    if "comment" in acts:
        yield call("comment", post=post, text=goal.text("text"))
    if "flair" in acts:
        yield call("set_flair", post=post, flair=goal.text("flair"))
