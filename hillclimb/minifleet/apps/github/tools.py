"""GitHub's tools: repositories have issues, issues have an assignee, labels and comments.

Rules: only the assignee may close an issue, closed issues take no more changes, labels come from
a fixed list, and only people known to the organisation can be assigned. Repeating a call changes
nothing.
"""

from __future__ import annotations

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import integer, text
from hillclimb.minifleet.framework.world import Fields, Row, RuleBroken, World, matches, same

LABELS = ("bug", "chore", "feature", "urgent")
NOBODY = "nobody"


def find_issues(world: World, args: Fields) -> str:
    """Return the open issues of a repository whose title or assignee matches."""
    repo, query = _repo(world, args), args.text("query")
    return lines(
        {"issue": row["id"], "title": row["title"], "assignee": row["assignee"]}
        for row in world.rows("issues", repo=repo["id"], state="open")
        if matches(query, row["title"]) or same(query, row["assignee"])
    )


def open_issue(world: World, args: Fields) -> str:
    """Open an issue, or return the open one of the same title."""
    repo, title = _repo(world, args), args.text("title").strip()
    if not title:
        raise RuleBroken("title is empty")
    for row in world.rows("issues", repo=repo["id"], state="open"):
        if same(row["title"], title):
            return line(issue=row["id"], status="open")
    issue = world.add("issues", "", repo=repo["id"], title=title, assignee=NOBODY, state="open")
    return line(issue=issue, status="open")


def assign_issue(world: World, args: Fields) -> str:
    """Give an issue to a member of the organisation."""
    issue = _open_issue(world, args)
    user = world.get("members", args.text("user"), "member")
    issue["assignee"] = user["id"]
    return line(issue=issue["id"], assignee=user["id"])


def label_issue(world: World, args: Fields) -> str:
    """Put a label on an issue."""
    issue, label = _open_issue(world, args), args.text("label")
    world.put("labels", f"{issue['id']}:{label}", issue=issue["id"], label=label)
    return line(issue=issue["id"], label=label)


def comment_issue(world: World, args: Fields) -> str:
    """Comment on an issue, once."""
    issue, body = _open_issue(world, args), args.text("text").strip()
    if not body:
        raise RuleBroken("text is empty")
    comment = {"issue": issue["id"], "author": world.user, "text": body}
    if not world.rows("comments", **comment):
        world.add("comments", "c", **comment)
    return line(issue=issue["id"], status="commented")


def close_issue(world: World, args: Fields) -> str:
    """Close an issue assigned to the user."""
    issue = world.get("issues", args.number("issue"), "issue")
    if issue["assignee"] != world.user:
        raise RuleBroken("only the assignee can close it")
    issue["state"] = "closed"
    return line(issue=issue["id"], status="closed")


def _repo(world: World, args: Fields) -> Row:
    return world.get("repos", args.text("repo"), "repo")


def _open_issue(world: World, args: Fields) -> Row:
    issue = world.get("issues", args.number("issue"), "issue")
    if issue["state"] != "open":
        raise RuleBroken("issue is closed")
    return issue


TOOLS: tuple[Tool, ...] = (
    read_only_tool(
        "find_issues", "by title or assignee", find_issues, {"repo": text(), "query": text()}
    ),
    tool("open_issue", "new issue", open_issue, {"repo": text(), "title": text()}),
    tool("assign_issue", "to a user", assign_issue, {"issue": integer(), "user": text()}),
    tool("label_issue", "add label", label_issue, {"issue": integer(), "label": text(*LABELS)}),
    tool("comment_issue", "comment", comment_issue, {"issue": integer(), "text": text()}),
    tool("close_issue", "if assigned to you", close_issue, {"issue": integer()}),
)
