"""Reddit's requests: posts by rank, title or author; votes, comments, flairs and membership."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.minifleet.apps.reddit.tools import FLAIRS
from hillclimb.minifleet.framework.changes import Change, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row, next_number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """A community whose top, newest and own post are three different ones, and another."""

    user: str
    community: str
    communities: list[Row]
    posts: list[Row]
    picks: dict[str, Row]
    """`top`, `new`, `mine`, and `title`, which is neither top nor newest."""
    new_title: str


def _scene(draw: TaskDraw) -> _Scene:
    pools = draw.pools
    user, *authors = (name.lower() for name in draw.some(pools.people, 5))
    community, elsewhere = draw.some(pools.communities, 2)
    titles = draw.phrases(pools.colours, pools.crafts, 5)
    points, hours = sorted(draw.numbers(4)), sorted(draw.numbers(4))
    ids = draw.ids("t", 5)

    def post(at: int, where: str, author: str, rank: tuple[int, int], title: str) -> Row:
        return {
            "id": ids[at],
            "community": where,
            "title": title,
            "author": author,
            "flair": "",
            "points": points[rank[0]],
            "hours": hours[rank[1]],
            "locked": int(at == 4),
        }

    picks = {
        "top": post(0, community, authors[0], (3, 2), titles[0]),
        "new": post(1, community, authors[1], (1, 0), titles[1]),
        "title": post(2, community, authors[2], (2, 1), titles[2]),
        "mine": post(3, community, user, (0, 3), titles[3]),
    }
    decoy = post(4, elsewhere, authors[3], (3, 0), titles[2])
    return _Scene(
        user=user,
        community=community,
        communities=[{"id": community}, {"id": elsewhere}],
        posts=draw.shuffled([*picks.values(), decoy]),
        picks=picks,
        new_title=titles[4],
    )


def _request(pick: str, *acts: str) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests on a post; `pick`: top, new, title, author, mine, or create for a new one.

    Acts: join (then the user is not yet a member), upvote, comment, flair.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        scene = _scene(draw)
        target = scene.picks["title" if pick in ("author", "create") else pick]
        title = scene.new_title if pick == "create" else str(target["title"])
        author = str(target["author"])
        goal: dict[str, JsonValue] = {
            "pick": pick,
            "acts": ",".join(acts),
            "community": scene.community,
            "title": title,
            "query": author if pick in ("author", "mine") else title,
            "text": draw.phrase(draw.pools.verdicts, draw.pools.reasons),
            "flair": draw.one(FLAIRS),
        }
        membership = [] if "join" in acts else [_member(scene.community, scene.user)]
        return FilledTemplate(
            user=scene.user,
            words={
                "community": scene.community,
                "title": title,
                "author": author,
                "text": str(goal["text"]),
                "flair": str(goal["flair"]),
            },
            tables={
                "communities": scene.communities,
                "members": membership,
                "posts": scene.posts,
                "comments": [],
                "votes": [],
            },
            goal=goal,
            changes=_expected(draw, scene, goal, target),
        )

    return build


def _member(community: str, user: str) -> Row:
    return {"id": f"{community}:{user}", "community": community, "user": user}


def _expected(
    draw: TaskDraw, scene: _Scene, goal: dict[str, JsonValue], target: Row
) -> list[Change]:
    acts, post = str(goal["acts"]).split(","), target["id"]
    flair = goal["flair"] if "flair" in acts else ""
    changes: list[Change] = []
    if goal["pick"] == "create":
        post = f"t{next_number([int(str(row['id'])[1:]) for row in scene.posts], draw.fresh)}"
        content = {"community": scene.community, "title": goal["title"], "author": scene.user}
        created = inserted("posts", **content, flair=flair, points=1, hours=0, locked=0)
        changes.append(created)
    elif flair:
        changes.append(updated("posts", post, flair=flair))
    if "join" in acts:
        changes.append(inserted("members", community=scene.community, user=scene.user))
    if "upvote" in acts:
        changes.append(inserted("votes", post=post, user=scene.user))
    if "comment" in acts:
        changes.append(inserted("comments", post=post, author=scene.user, text=goal["text"]))
    return changes


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="upvote_top",
        difficulty=1,
        wordings=(
            "Upvote the top post in {community}.",
            "In {community}, upvote the most popular post.",
            "Give the top post of {community} an upvote.",
        ),
        build=_request("top", "upvote"),
    ),
    Template(
        name="upvote_newest",
        difficulty=1,
        wordings=(
            "Upvote the newest post in {community}.",
            "In {community}, upvote the latest post.",
            "Give the newest post of {community} an upvote.",
        ),
        build=_request("new", "upvote"),
    ),
    Template(
        name="upvote_title",
        difficulty=1,
        wordings=(
            'Upvote the post "{title}" in {community}.',
            'In {community}, upvote "{title}".',
            'Give the post "{title}" in {community} an upvote.',
        ),
        build=_request("title", "upvote"),
    ),
    Template(
        name="upvote_author",
        difficulty=1,
        wordings=(
            "Upvote the post by {author} in {community}.",
            "In {community}, upvote what {author} posted.",
        ),
        build=_request("author", "upvote"),
    ),
    Template(
        name="comment_top",
        difficulty=1,
        wordings=(
            'Comment "{text}" on the top post in {community}.',
            'In {community}, comment "{text}" on the most popular post.',
        ),
        build=_request("top", "comment"),
    ),
    Template(
        name="comment_newest",
        difficulty=1,
        wordings=(
            'Comment "{text}" on the newest post in {community}.',
            'In {community}, comment "{text}" on the latest post.',
        ),
        build=_request("new", "comment"),
    ),
    Template(
        name="comment_title",
        difficulty=1,
        wordings=(
            'Comment "{text}" on the post "{title}" in {community}.',
            'In {community}, comment "{text}" on "{title}".',
        ),
        build=_request("title", "comment"),
    ),
    Template(
        name="flair_mine",
        difficulty=2,
        wordings=(
            "Set the flair of my post in {community} to {flair}.",
            "In {community}, give my post the flair {flair}.",
        ),
        build=_request("mine", "flair"),
    ),
    Template(
        name="post",
        difficulty=1,
        wordings=(
            'Post "{title}" in {community}.',
            'In {community}, create the post "{title}".',
        ),
        build=_request("create"),
    ),
    Template(
        name="post_with_flair",
        difficulty=2,
        wordings=(
            'Post "{title}" in {community} with the flair {flair}.',
            'In {community}, create the post "{title}" and give it the flair {flair}.',
        ),
        build=_request("create", "flair"),
    ),
    Template(
        name="join_and_post",
        difficulty=2,
        wordings=(
            'Join {community} and post "{title}".',
            'Become a member of {community}, then post "{title}".',
        ),
        build=_request("create", "join"),
    ),
    Template(
        name="join_and_comment_top",
        difficulty=3,
        wordings=(
            'Join {community} and comment "{text}" on the top post.',
            'Become a member of {community}, then comment "{text}" on the most popular post.',
        ),
        build=_request("top", "join", "comment"),
    ),
    Template(
        name="upvote_and_comment_title",
        difficulty=3,
        wordings=(
            'Upvote the post "{title}" in {community} and comment "{text}".',
            'In {community}, upvote "{title}" and comment "{text}".',
        ),
        build=_request("title", "upvote", "comment"),
    ),
    Template(
        name="upvote_title_reworded",
        difficulty=1,
        wordings=(
            'The post "{title}" in {community} deserves my upvote.',
            'Vote for "{title}" in {community}.',
        ),
        build=_request("title", "upvote"),
        held_out=True,
    ),
    Template(
        name="comment_top_reworded",
        difficulty=1,
        wordings=(
            'Say "{text}" under the top post in {community}.',
            'The top post in {community} needs the comment "{text}".',
        ),
        build=_request("top", "comment"),
        held_out=True,
    ),
    Template(
        name="join_and_comment_newest",
        difficulty=3,
        wordings=('Join {community} and comment "{text}" on the newest post.',),
        build=_request("new", "join", "comment"),
        held_out=True,
    ),
    Template(
        name="comment_author",
        difficulty=2,
        wordings=(
            'Comment "{text}" on the post by {author} in {community}.',
            'In {community}, comment "{text}" on what {author} posted.',
        ),
        build=_request("author", "comment"),
        held_out=True,
    ),
)
