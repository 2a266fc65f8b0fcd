"""Calls refused for lack of permission or authentication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.material.lookups import rows_of
from tests.hillclimb.stats.trajectories.labelled.material.refusals.permission import PERMISSION
from tests.hillclimb.stats.trajectories.labelled.scripts.calls import bystanders
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import (
    admit,
    begin,
    end_somehow,
    go_on,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "authorization"
_PERMISSIONS = (
    '{"role": "viewer", "permissions": ["read"], "denied": []}',
    '{"user": "guest", "can_write": false, "is_admin": false}',
    "Scopes of this token: read. Not included: write, admin.",
    '{"policy": "Members are not allowed to post advertisements.", "version": 3}',
    '{"status": 200, "login": {"required": false, "unauthorized_attempts": 0}}',
)

_OWNED = {
    "github": ("issues", "assignee", "issue"),
    "reddit": ("posts", "author", "post"),
    "ticketmaster": ("holds", "fan", "hold"),
}
"""Tables of things that belong to somebody: the owner's field, and the argument of calls."""
_FOR_OWNERS: Mapping[str, tuple[tuple[str, Mapping[str, JsonValue]], ...]] = {
    "github": (("close_issue", {}),),
    "reddit": (("set_flair", {"flair": "news"}), ("set_flair", {"flair": "guide"})),
    "ticketmaster": (("pay_hold", {"card": "visa"}), ("change_hold", {"count": 2})),
}
"""Calls that only the owner may make."""


async def _not_yours(agent: Agent) -> None:
    """Act on somebody else's thing, which the app itself refuses."""
    user = agent.task.env_variables["LOGGED_IN_USER"]
    table, owner, noun = _OWNED[agent.task.env_key]
    foreign = [
        row
        for row in rows_of(agent.task, table)
        if row[owner] != user and row.get("state") != "closed"
    ]
    row = agent.rng.choice(foreign)
    await agent.turn(_search_of(agent, row))
    name, rest = agent.rng.choice(_FOR_OWNERS[agent.task.env_key])
    act = Step(name=name, arguments={noun: row["id"], **rest})
    await agent.turn(act.refused(Refusal.PERMISSION))
    await go_on(agent)


def _search_of(agent: Agent, row: Mapping[str, JsonValue]) -> Step:
    """Return the search that shows a row."""
    match agent.task.env_key:
        case "github":
            arguments = {"repo": row["repo"], "query": row["title"]}
            return Step(name="find_issues", arguments=arguments)
        case "reddit":
            arguments = {"community": row["community"], "query": row["title"]}
            return Step(name="search_posts", arguments=arguments)
    return Step(name="list_holds", arguments={"fan": row["fan"]})


async def _in_other_words(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(refused(agent, agent.next_call, Refusal.PERMISSION))
    await go_on(agent)


async def _every_change(agent: Agent) -> None:
    await agent.solve(but=1)
    step = agent.next_call
    for number in range(2):
        name = step.name if number == 0 else f"admin_{step.name}"
        await agent.turn(refused(agent, replace(step, name=name), Refusal.PERMISSION))
    await admit(agent)


async def _from_the_start(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 4)):
        await agent.turn(refused(agent, agent.lookup(), Refusal.PERMISSION))
    await end_somehow(agent)


async def _expired_on_the_way(agent: Agent) -> None:
    """Work until the session expires, then call on in vain."""
    wordings = tuple(each for each in PERMISSION if "expired" in each.text or "log" in each.text)
    await agent.look(agent.rng.randint(1, 3))
    await begin(agent)
    for _ in range(agent.rng.randint(1, 2)):
        await agent.turn(refused(agent, agent.lookup(), Refusal.PERMISSION, wordings))
    await end_somehow(agent)


async def _permissions_listed(agent: Agent) -> None:
    await agent.turn(answered(agent.lookup(), agent.rng.choice(_PERMISSIONS)))
    await go_on(agent)


async def _text_about_permission(agent: Agent) -> None:
    """Write words of a refusal into the app, which accepts them."""
    await agent.solve(but=1)
    step = agent.next_call
    texts: Mapping[str, str] = {
        "comment_issue": "text",
        "send_mail": "text",
        "comment": "text",
        "open_issue": "title",
        "create_post": "title",
        "log_activity": "text",
        "add_event": "title",
        "create_ticket": "title",
    }
    words = agent.rng.choice(
        ("403 Forbidden: permission denied when saving", "Error: you are not allowed to do that")
    )
    arguments = {**step.arguments, texts[step.name]: words}
    await agent.turn(replace(step, arguments=arguments))
    await end_somehow(agent)


_TEXTS = Setting(
    apps=("github", "outlook", "reddit", "hubspot"),
    templates=(
        "comment",
        "comment_mine",
        "send",
        "reply_subject",
        "reply_sender",
        "comment_top",
        "comment_title",
        "log_call",
        "log_meeting_company",
    ),
)

SCRIPTS = (
    Script(
        family=FAMILY,
        kind="not-yours",
        play=_not_yours,
        times=9,
        setting=Setting(apps=("github", "reddit", "ticketmaster"), max_calls=4),
    ),
    Script(family=FAMILY, kind="in-other-words", play=_in_other_words, times=24),
    Script(family=FAMILY, kind="every-change", play=_every_change, times=6),
    Script(family=FAMILY, kind="from-the-start", play=_from_the_start, times=8),
    Script(family=FAMILY, kind="expired-on-the-way", play=_expired_on_the_way),
    *bystanders.scripts(FAMILY, titles="permission", own_refusal=Refusal.PERMISSION),
    Script(
        family=FAMILY,
        kind="permissions-listed",
        play=_permissions_listed,
        is_near_miss=True,
        times=5,
    ),
    Script(
        family=FAMILY,
        kind="text-about-permission",
        play=_text_about_permission,
        is_near_miss=True,
        setting=_TEXTS,
    ),
)
