"""GitHub's requests: one issue, found by title or by whose it is, and one to three acts on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.minifleet.apps.github.tools import LABELS, NOBODY
from hillclimb.minifleet.framework.changes import Change, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row, Scalar, next_number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """Two repositories with issues; a decoy carries the target's title in the other one."""

    user: str
    friend: str
    repo: str
    issues: list[Row]
    target: Row
    members: list[Row]
    repos: list[Row]
    new_title: str


def _scene(draw: TaskDraw, assignee: str) -> _Scene:
    """Draw a scene whose target issue is assigned to `me`, `other` or `nobody`."""
    pools = draw.pools
    user, friend, third, fourth = (name.lower() for name in draw.some(pools.people, 4))
    stems, suffixes = draw.some(pools.projects, 2), draw.some(pools.suffixes, 2)
    repo, elsewhere = (f"{stem}-{end}" for stem, end in zip(stems, suffixes, strict=True))
    titles = draw.phrases(pools.components, pools.symptoms, 5)
    numbers = draw.numbers(5)
    owner = {"me": user, "other": third, "nobody": NOBODY}[assignee]

    def issue(at: int, where: str, title: str, who: str) -> Row:
        return {"id": numbers[at], "repo": where, "title": title, "assignee": who, "state": "open"}

    target = issue(0, repo, titles[0], owner)
    rest = [issue(1, repo, titles[1], fourth), issue(2, repo, titles[2], NOBODY)]
    away = [issue(3, elsewhere, titles[0], user), issue(4, elsewhere, titles[3], third)]
    return _Scene(
        user=user,
        friend=friend,
        repo=repo,
        issues=draw.shuffled([target, *rest, *away]),
        target=target,
        members=[{"id": name} for name in (user, friend, third, fourth)],
        repos=[{"id": repo}, {"id": elsewhere}],
        new_title=titles[4],
    )


def _request(
    find: str, *acts: str, assignee: str = "other"
) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests that find an issue by `title` or `mine`, or `open` one, and then act.

    Acts: label, assign (to a colleague), take (assign to the user), comment, close.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        scene = _scene(draw, "me" if find == "mine" else assignee)
        label, remark = draw.one(LABELS), draw.phrase(draw.pools.verdicts, draw.pools.reasons)
        title = scene.new_title if find == "open" else str(scene.target["title"])
        number = scene.target["id"]
        if find == "open":
            number = next_number([int(row["id"]) for row in scene.issues], draw.fresh)
        person = scene.user if "take" in acts else scene.friend
        query = scene.user if find == "mine" else title
        goal: dict[str, JsonValue] = {
            "kind": "open" if find == "open" else "find",
            "acts": ",".join("assign" if act == "take" else act for act in acts),
            "repo": scene.repo,
            "query": query,
            "label": label,
            "user": person,
            "text": remark,
        }
        return FilledTemplate(
            user=scene.user,
            words={
                "repo": scene.repo,
                "title": title,
                "label": label,
                "user": person,
                "text": remark,
            },
            tables={
                "repos": scene.repos,
                "members": scene.members,
                "issues": scene.issues,
                "labels": [],
                "comments": [],
            },
            goal=goal,
            changes=_expected(scene, goal, number, opened=find == "open"),
        )

    return build


def _expected(
    scene: _Scene, goal: dict[str, JsonValue], number: Scalar, *, opened: bool
) -> list[Change]:
    acts = str(goal["acts"]).split(",")
    fields: dict[str, JsonValue] = {}
    if "assign" in acts:
        fields["assignee"] = goal["user"]
    if "close" in acts:
        fields["state"] = "closed"
    changes: list[Change] = []
    if opened:
        fresh = {"assignee": NOBODY, "state": "open", **fields}
        changes.append(inserted("issues", repo=scene.repo, title=goal["query"], **fresh))
    elif fields:
        changes.append(updated("issues", number, **fields))
    if "label" in acts:
        changes.append(inserted("labels", issue=number, label=goal["label"]))
    if "comment" in acts:
        comment = {"issue": number, "author": scene.user, "text": goal["text"]}
        changes.append(inserted("comments", **comment))
    return changes


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="label",
        difficulty=1,
        wordings=(
            'Label the issue "{title}" in {repo} as {label}.',
            'Add the label {label} to "{title}" in {repo}.',
            'In {repo}, mark the issue "{title}" as {label}.',
        ),
        build=_request("title", "label"),
    ),
    Template(
        name="assign",
        difficulty=1,
        wordings=(
            'Assign the issue "{title}" in {repo} to {user}.',
            'Give "{title}" in {repo} to {user}.',
            'In {repo}, {user} should own the issue "{title}".',
        ),
        build=_request("title", "assign"),
    ),
    Template(
        name="take",
        difficulty=2,
        wordings=(
            'Assign the issue "{title}" in {repo} to me.',
            'Give "{title}" in {repo} to me.',
        ),
        build=_request("title", "take"),
    ),
    Template(
        name="comment",
        difficulty=1,
        wordings=(
            'Comment "{text}" on the issue "{title}" in {repo}.',
            'Write "{text}" under the issue "{title}" in {repo}.',
            'In {repo}, reply "{text}" to the issue "{title}".',
        ),
        build=_request("title", "comment"),
    ),
    Template(
        name="close_mine",
        difficulty=2,
        wordings=("Close my issue in {repo}.", "In {repo}, close the issue assigned to me."),
        build=_request("mine", "close"),
    ),
    Template(
        name="take_and_close",
        difficulty=3,
        wordings=(
            'Assign the issue "{title}" in {repo} to me and close it.',
            'Take over "{title}" in {repo}, then close it.',
        ),
        build=_request("title", "take", "close"),
    ),
    Template(
        name="open",
        difficulty=1,
        wordings=(
            'Open an issue "{title}" in {repo}.',
            'File the issue "{title}" in {repo}.',
            'In {repo}, open an issue called "{title}".',
        ),
        build=_request("open"),
    ),
    Template(
        name="open_and_label",
        difficulty=2,
        wordings=(
            'Open an issue "{title}" in {repo} and label it {label}.',
            'File "{title}" as a new {label} issue in {repo}.',
        ),
        build=_request("open", "label"),
    ),
    Template(
        name="open_and_assign",
        difficulty=2,
        wordings=(
            'Open an issue "{title}" in {repo} and assign it to {user}.',
            'File a new issue "{title}" in {repo} for {user}.',
        ),
        build=_request("open", "assign"),
    ),
    Template(
        name="label_mine",
        difficulty=2,
        wordings=(
            "Label my issue in {repo} as {label}.",
            "In {repo}, mark the issue assigned to me as {label}.",
        ),
        build=_request("mine", "label"),
    ),
    Template(
        name="comment_mine",
        difficulty=2,
        wordings=(
            'Comment "{text}" on my issue in {repo}.',
            'In {repo}, reply "{text}" to the issue assigned to me.',
        ),
        build=_request("mine", "comment"),
    ),
    Template(
        name="assign_and_label",
        difficulty=3,
        wordings=(
            'Assign the issue "{title}" in {repo} to {user} and label it {label}.',
            'In {repo}, give "{title}" to {user} and mark it as {label}.',
        ),
        build=_request("title", "assign", "label"),
    ),
    Template(
        name="label_and_comment",
        difficulty=3,
        wordings=(
            'Label the issue "{title}" in {repo} as {label} and comment "{text}".',
            'In {repo}, mark "{title}" as {label} and reply "{text}".',
        ),
        build=_request("title", "label", "comment"),
    ),
    Template(
        name="assign_reworded",
        difficulty=1,
        wordings=(
            'Hand the issue "{title}" in {repo} to {user}.',
            'Make {user} the assignee of "{title}" in {repo}.',
        ),
        build=_request("title", "assign"),
        held_out=True,
    ),
    Template(
        name="label_reworded",
        difficulty=1,
        wordings=(
            '"{title}" in {repo} is {label}: label it.',
            'Put {label} on the issue "{title}" in {repo}.',
        ),
        build=_request("title", "label"),
        held_out=True,
    ),
    Template(
        name="open_and_comment",
        difficulty=3,
        wordings=('Open an issue "{title}" in {repo} and comment "{text}".',),
        build=_request("open", "comment"),
        held_out=True,
    ),
    Template(
        name="comment_and_close_mine",
        difficulty=3,
        wordings=('Comment "{text}" on my issue in {repo} and close it.',),
        build=_request("mine", "comment", "close"),
        held_out=True,
    ),
)
