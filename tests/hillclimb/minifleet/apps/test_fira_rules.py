"""Fira: a workflow, sprints that fill up, blockers, and hours that must add up."""

from __future__ import annotations

from pydantic import JsonValue

from hillclimb.minifleet.framework.world import Row, World
from tests.hillclimb.minifleet.playing import done, episode, refused


def ticket(world: World, **equal: str | int) -> Row:
    return world.rows("tickets", **equal)[0]


async def test_a_ticket_moves_one_step_at_a_time_or_back_to_todo() -> None:
    env, world = await episode("fira", "test_from_todo")
    row = ticket(world, status="todo", owner=world.rows("members")[1]["id"])
    key = str(row["id"])
    assert await refused(env, "move_ticket", {"ticket": key, "status": "testing"}) == (
        "a todo ticket goes to doing"
    )
    await done(env, "move_ticket", ticket=key, status="doing")
    assert "goes to testing or back to todo" in await refused(
        env, "move_ticket", {"ticket": key, "status": "done"}
    )
    await done(env, "move_ticket", ticket=key, status="testing")
    await done(env, "move_ticket", ticket=key, status="todo")
    assert row["status"] == "todo"


async def test_a_ticket_is_done_only_with_hours_on_it_and_then_stays_as_it_is() -> None:
    env, world = await episode("fira", "log_and_finish")
    logged = {row["ticket"] for row in world.rows("worklogs")}
    row = next(each for each in world.rows("tickets", status="testing") if each["id"] not in logged)
    key, finish = str(row["id"]), {"ticket": row["id"], "status": "done"}
    assert "log work first" in await refused(env, "move_ticket", finish)
    await done(env, "log_work", ticket=key, hours=2, date=world.today)
    await done(env, "move_ticket", ticket=key, status="done")
    late: dict[str, JsonValue] = {"ticket": key, "hours": 1, "date": world.today}
    assert await refused(env, "move_ticket", finish) == "ticket is done"
    assert await refused(env, "log_work", late) == "ticket is done"
    out = {"ticket": key, "sprint": "backlog"}
    assert await refused(env, "plan_ticket", out) == "ticket is done"
    assert str(row["title"]) not in (await env.call("find_tickets", {"query": row["title"]})).text


async def test_a_blocked_ticket_waits_for_what_blocks_it() -> None:
    env, world = await episode("fira", "unblock_and_start")
    row = next(each for each in world.rows("tickets") if each["blocker"])
    start = {"ticket": row["id"], "status": "doing"}
    assert await refused(env, "move_ticket", start) == (
        f"blocked by {row['blocker']}, which is testing: finish it first"
    )
    await done(env, "move_ticket", ticket=row["blocker"], status="done")
    await done(env, "move_ticket", **start)


async def test_nobody_works_on_two_tickets_and_none_starts_from_the_backlog() -> None:
    env, world = await episode("fira", "hand_in_and_start")
    busy = ticket(world, owner=world.user, status="doing")
    mine = ticket(world, owner=world.user, status="todo")
    start = {"ticket": mine["id"], "status": "doing"}
    assert f"works on {busy['id']}" in await refused(env, "move_ticket", start)
    await done(env, "plan_ticket", ticket=mine["id"], sprint="backlog")
    await done(env, "move_ticket", ticket=busy["id"], status="testing")
    assert "plan it into a sprint first" in await refused(env, "move_ticket", start)


async def test_a_sprint_takes_no_more_points_than_it_has_room_for() -> None:
    env, world = await episode("fira", "make_room_and_plan")
    row = ticket(world, sprint="backlog")
    goal = env._task.payload["goal"]
    assert isinstance(goal, dict)
    full, filler = str(goal["sprint"]), ticket(world, title=str(goal["other"]))
    into = {"ticket": row["id"], "sprint": full}
    assert await refused(env, "plan_ticket", into) == (
        f"ticket has {row['points']} points, sprint has room for 0"
    )
    await done(env, "plan_ticket", ticket=filler["id"], sprint="backlog")
    await done(env, "plan_ticket", **into)
    rooms = await done(env, "list_sprints", points=1)
    assert f'{{"sprint":"{full}","room":{8 - int(row["points"])}}}' in rooms


async def test_closed_sprints_unknown_ones_and_started_tickets_stay_alone() -> None:
    env, world = await episode("fira", "plan")
    key = ticket(world, sprint="backlog")["id"]
    closed = world.rows("sprints", state="closed")[0]["id"]
    assert "closed" in await refused(env, "plan_ticket", {"ticket": key, "sprint": closed})
    assert "no sprint" in await refused(env, "plan_ticket", {"ticket": key, "sprint": "nosuch"})
    started = ticket(world, status="doing")["id"]
    into = {"ticket": started, "sprint": "backlog"}
    assert "only todo tickets" in await refused(env, "plan_ticket", into)
    shown = await done(env, "list_sprints", points=0)
    assert f'"{closed}"' not in shown
    assert (await done(env, "list_sprints", points=99)) == "no sprint has room"


async def test_hours_are_worked_before_they_are_logged_and_eight_a_day() -> None:
    env, world = await episode("fira", "log_today")
    key = ticket(world, status="doing")["id"]
    entry = {"ticket": key, "hours": 5, "date": world.today}
    assert "future" in await refused(env, "log_work", {**entry, "date": "2026-12-31"})
    assert "like" in await refused(env, "log_work", {**entry, "date": "yesterday"})
    assert "1 to 8" in await refused(env, "log_work", {**entry, "hours": 0})
    assert "1 to 8" in await refused(env, "log_work", {**entry, "hours": 9})
    await done(env, "log_work", **entry)
    assert await refused(env, "log_work", {**entry, "hours": 4}) == (
        "hours must be 1 to 8 a day, 5 are logged"
    )
    await done(env, "log_work", **{**entry, "hours": 3})
    idle = ticket(world, status="todo")["id"]
    assert "todo" in await refused(env, "log_work", {**entry, "ticket": idle})


async def test_an_owner_is_found_by_name_and_not_by_titles_that_hold_it() -> None:
    env, world = await episode("fira", "test_mine")
    other = next(row for row in world.rows("tickets") if row["owner"] != world.user)
    other["title"] = f"in{world.user}o"
    found = (await done(env, "find_tickets", query=world.user.lower())).splitlines()
    assert len(found) == 1
    assert str(ticket(world, owner=world.user)["id"]) in found[0]
    by_title = await done(env, "find_tickets", query=str(other["title"]).upper())
    assert f'"{other["id"]}"' in by_title


async def test_new_tickets_need_a_title_of_their_own_points_of_the_scale_and_an_epic() -> None:
    env, world = await episode("fira", "create")
    new = {"title": "tidy up", "epic": world.rows("epics")[0]["id"], "points": 3}
    assert "1, 2, 3, 5, 8" in await refused(env, "create_ticket", {**new, "points": 4})
    assert "no epic" in await refused(env, "create_ticket", {**new, "epic": "nosuch"})
    assert "empty" in await refused(env, "create_ticket", {**new, "title": "  "})
    await done(env, "create_ticket", **new)
    assert "of that title" in await refused(env, "create_ticket", {**new, "title": "Tidy up"})
    assert ticket(world, title="tidy up")["owner"] == world.user
