"""The rules that make each app more than a table."""

from __future__ import annotations

import pytest

from hillclimb.minifleet.catalog import APPS
from tests.hillclimb.minifleet.playing import episode, refused


async def test_booking_refuses_taken_rooms_past_dates_and_odd_stays() -> None:
    env, world = await episode("booking", "cheapest_date_guest")
    taken = world.rows("bookings")[0]["room"]
    free = next(
        row["id"] for row in world.rows("rooms") if not world.rows("bookings", room=row["id"])
    )
    stay = {"room": free, "guest": "Ann", "date": "2026-12-28", "nights": 2}
    assert await refused(env, "book_room", {**stay, "room": taken}) == "room is not free"
    assert await refused(env, "book_room", {**stay, "date": "2025-12-28"}) == "date is in the past"
    assert "like" in await refused(env, "book_room", {**stay, "date": "tomorrow"})
    assert await refused(env, "book_room", {**stay, "nights": 0}) == "nights must be 1 to 9"
    assert not (await env.call("book_room", stay)).is_error
    assert await refused(env, "book_room", stay) == "room is not free"


async def test_booking_lists_only_free_rooms_that_are_large_enough() -> None:
    env, world = await episode("booking", "cheapest_date_guest")
    hotel = world.rows("hotels")[0]["id"]
    result = await env.call("list_rooms", {"hotel": hotel, "guests": 2})
    taken = {row["room"] for row in world.rows("bookings")}
    assert not any(f'"{room}"' in result.text for room in taken)
    assert (await env.call("list_rooms", {"hotel": hotel, "guests": 9})).text == "no free room"


async def test_github_lets_only_the_assignee_close_and_keeps_closed_issues() -> None:
    env, world = await episode("github", "take_and_close")
    issue = next(row["id"] for row in world.rows("issues") if row["assignee"] != world.user)
    assert "assignee" in await refused(env, "close_issue", {"issue": issue})
    await env.call("assign_issue", {"issue": issue, "user": world.user})
    assert not (await env.call("close_issue", {"issue": issue})).is_error
    assert "closed" in await refused(env, "label_issue", {"issue": issue, "label": "bug"})
    stranger = {"issue": issue, "user": "nosuchuser"}
    assert "closed" in await refused(env, "assign_issue", stranger)


async def test_outlook_mails_contacts_only() -> None:
    env, world = await episode("outlook", "send")
    stranger = {"to": "who@else.org", "text": "hello"}
    assert "contact" in await refused(env, "send_mail", stranger)
    mail = world.rows("mails")[0]["id"]
    assert "one of" in await refused(env, "move_mail", {"mail": mail, "folder": "attic"})


async def test_reddit_wants_members_authors_and_open_posts() -> None:
    env, world = await episode("reddit", "join_and_comment_top")
    community = world.rows("communities")[0]["id"]
    locked = world.rows("posts", locked=1)[0]
    mine = world.rows("posts", author=world.user)[0]["id"]
    other = next(row["id"] for row in world.rows("posts") if row["author"] != world.user)
    assert "join" in await refused(env, "comment", {"post": other, "text": "hi"})
    assert "join" in await refused(env, "create_post", {"community": community, "title": "hi"})
    assert "author" in await refused(env, "set_flair", {"post": other, "flair": "news"})
    assert "own" in await refused(env, "upvote", {"post": mine})
    await env.call("join", {"community": locked["community"]})
    assert "locked" in await refused(env, "comment", {"post": locked["id"], "text": "hi"})


async def test_ticketmaster_holds_once_within_stock_and_takes_own_cards() -> None:
    env, world = await episode("ticketmaster", "artist_cheapest_next")
    seat = world.rows("offers")[0]["id"]
    assert "1 to 6" in await refused(env, "hold_seats", {"seat": seat, "count": 7})
    await env.call("hold_seats", {"seat": seat, "count": 2})
    assert "open hold" in await refused(env, "hold_seats", {"seat": seat, "count": 2})
    hold = world.rows("holds", fan=world.user)[0]["id"]
    foreign = next(row["id"] for row in world.rows("holds") if row["fan"] != world.user)
    own = {row["card"] for row in world.rows("cards", fan=world.user)}
    card = next(iter({"visa", "amex", "maestro", "diners"} - own))
    assert "not on your account" in await refused(env, "pay_hold", {"hold": hold, "card": card})
    assert "not your hold" in await refused(env, "pay_hold", {"hold": foreign, "card": min(own)})
    world.rows("offers")[0]["seats"] = 4
    assert "seats left" in await refused(env, "change_hold", {"hold": hold, "count": 6})


@pytest.mark.parametrize("env_key", tuple(APPS))
def test_tools_are_five_to_eight_with_flat_object_schemas(env_key: str) -> None:
    specs = [tool.spec for tool in APPS[env_key].tools]
    assert 5 <= len(specs) <= 8
    for spec in specs:
        assert spec.parameters["type"] == "object"
        assert len(spec.description.split()) <= 5


def test_apps_share_no_tool_name() -> None:
    names = [tool.spec.name for app in APPS.values() for tool in app.tools]
    assert len(set(names)) == len(names)
