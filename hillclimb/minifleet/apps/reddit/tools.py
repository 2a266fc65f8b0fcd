"""Reddit's tools: communities have members and posts, posts have comments, votes and a flair.

Rules: only members post and comment, nobody votes on a post of their own, only the author sets a
flair, locked posts take no comments. Every call may be repeated without further effect.
"""

from __future__ import annotations

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import text
from hillclimb.minifleet.framework.world import Fields, Row, RuleBroken, World, matches, same

FLAIRS = ("question", "showcase", "guide", "news")


def search_posts(world: World, args: Fields) -> str:
    """Return a community's posts, by votes or by age, narrowed to a title or an author."""
    community, query = _community(world, args), args.text("query")
    posts = [
        row
        for row in world.rows("posts", community=community)
        if matches(query, row["title"]) or same(query, row["author"])
    ]
    newest = args.text("sort", "top") == "new"
    posts.sort(key=lambda row: int(row["hours"]) if newest else -int(row["points"]))
    return lines(
        {"post": row["id"], "title": row["title"], "author": row["author"]} for row in posts
    )


def join(world: World, args: Fields) -> str:
    """Make the user a member of a community."""
    community = _community(world, args)
    world.put("members", f"{community}:{world.user}", community=community, user=world.user)
    return line(community=community, status="joined")


def create_post(world: World, args: Fields) -> str:
    """Post to a community the user is a member of; the same title again is the same post."""
    community, title = _community(world, args), args.text("title").strip()
    _require_member(world, community)
    if not title:
        raise RuleBroken("title is empty")
    for row in world.rows("posts", community=community, author=world.user):
        if same(row["title"], title):
            return line(post=row["id"], status="posted")
    content: Row = {"community": community, "title": title, "author": world.user}
    post = world.add("posts", "t", **content, flair="", points=1, hours=0, locked=0)
    return line(post=post, status="posted")


def set_flair(world: World, args: Fields) -> str:
    """Set the flair of a post of the user's own."""
    post = _post(world, args)
    if post["author"] != world.user:
        raise RuleBroken("only the author can set the flair")
    post["flair"] = args.text("flair")
    return line(post=post["id"], flair=post["flair"])


def upvote(world: World, args: Fields) -> str:
    """Vote for somebody else's post."""
    post = _post(world, args)
    if post["author"] == world.user:
        raise RuleBroken("no votes on your own post")
    world.put("votes", f"{post['id']}:{world.user}", post=post["id"], user=world.user)
    return line(post=post["id"], status="upvoted")


def comment(world: World, args: Fields) -> str:
    """Comment on a post of a community the user is a member of, once."""
    post, body = _post(world, args), args.text("text").strip()
    _require_member(world, str(post["community"]))
    if post["locked"]:
        raise RuleBroken("post is locked")
    if not body:
        raise RuleBroken("text is empty")
    content: Row = {"post": post["id"], "author": world.user, "text": body}
    if not world.rows("comments", **content):
        world.add("comments", "c", **content)
    return line(post=post["id"], status="commented")


def _community(world: World, args: Fields) -> str:
    return str(world.get("communities", args.text("community"), "community")["id"])


def _post(world: World, args: Fields) -> Row:
    return world.get("posts", args.text("post"), "post")


def _require_member(world: World, community: str) -> None:
    if f"{community}:{world.user}" not in world.tables["members"]:
        raise RuleBroken(f"join {community} first")


TOOLS: tuple[Tool, ...] = (
    read_only_tool(
        "search_posts",
        "query: title or author",
        search_posts,
        {"community": text()},
        query=text(),
        sort=text("top", "new"),
    ),
    tool("join", "join a community", join, {"community": text()}),
    tool("create_post", "members only", create_post, {"community": text(), "title": text()}),
    tool("set_flair", "own post", set_flair, {"post": text(), "flair": text(*FLAIRS)}),
    tool("upvote", "upvote", upvote, {"post": text()}),
    tool("comment", "members only", comment, {"post": text(), "text": text()}),
)
