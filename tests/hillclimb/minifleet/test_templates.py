"""Every template of every app, played by experts and by agents that should fail."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from hillclimb.environment.task import Task
from hillclimb.minifleet.apps.hubspot.tools import CLOSED
from hillclimb.minifleet.catalog import APPS, make_task
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.hillclimb.minifleet.playing import (
    calls_of,
    changes_something,
    play,
    play_last_row,
    play_then,
    repeating,
    replay,
    started,
    with_argument,
    without,
)

ENVS = tuple(APPS)


def tasks_of(env_key: str, n: int = 220) -> tuple[Task, ...]:
    train = minifleet_tasks((env_key,), "train", n, 3)
    return train + minifleet_tasks((env_key,), "eval", n, 3, 0.5)


@pytest.mark.parametrize("env_key", ENVS)
async def test_the_expert_solves_every_task_without_an_error(env_key: str) -> None:
    tasks = tasks_of(env_key)
    assert {task.template for task in tasks} == {each.name for each in APPS[env_key].templates}
    for task in tasks:
        grade, results = await play(task)
        assert grade.score == 1.0, (task.key, grade.reason)
        assert not any(result.is_error for result in results)
        assert 1 <= len(results) <= 4


@pytest.mark.parametrize("env_key", ENVS)
async def test_doing_nothing_scores_zero(env_key: str) -> None:
    for task in tasks_of(env_key):
        env = await started(task)
        assert (await env.score()).score == 0.0


@pytest.mark.parametrize("env_key", ENVS)
def test_an_app_has_at_least_twelve_templates_and_a_quarter_is_held_out(env_key: str) -> None:
    templates = APPS[env_key].templates
    assert len({each.name for each in templates}) == len(templates) >= 12
    held_out = [each for each in templates if each.held_out]
    assert 0.2 <= len(held_out) / len(templates) <= 0.3
    assert {each.difficulty for each in templates} == {1, 2, 3}


@pytest.mark.parametrize("env_key", ENVS)
def test_no_two_templates_share_both_goal_and_wording(env_key: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    for template in APPS[env_key].templates:
        cells = template.build.__closure__ or ()
        goal = repr([cell.cell_contents for cell in cells])
        for wording in template.wordings:
            assert (goal, wording) not in seen, (template.name, seen.get((goal, wording)))
            seen[goal, wording] = template.name


async def test_an_agent_that_books_one_night_fails_every_stay() -> None:
    for task in tasks_of("booking"):
        grade, results = await play(task, with_argument("book_room", nights=1))
        stay = '"status":"booked"' in results[-1].text
        assert grade.score == (0.0 if stay else 1.0), task.key


async def test_an_agent_that_changes_a_booking_to_one_night_fails() -> None:
    for task in tasks_of("booking"):
        grade, results = await play(task, with_argument("change_booking", nights=1))
        changed = '"status":"changed"' in results[-1].text
        assert grade.score == (0.0 if changed else 1.0), task.key


async def test_an_agent_that_never_pays_fails_every_ticketmaster_task() -> None:
    for task in tasks_of("ticketmaster"):
        grade, _ = await play(task, without("pay_hold"))
        assert grade.score == 0.0


async def test_repeating_every_call_changes_nothing_in_reddit_and_github() -> None:
    for task in tasks_of("reddit") + tasks_of("github"):
        grade, results = await play(task, repeating)
        assert grade.score == 1.0, (task.key, grade.reason)
        assert not any(result.is_error for result in results)


@pytest.mark.parametrize("env_key", ENVS)
async def test_stopping_one_call_early_fails(env_key: str) -> None:
    for task in tasks_of(env_key, 60):
        _, results = await play(task)
        left = len(results) - 1

        def rewrite(call: ToolCall) -> list[ToolCall]:
            nonlocal left
            left -= 1
            return [call] if left >= 0 else []

        grade, _ = await play(task, rewrite)
        assert grade.score == 0.0, task.key


@pytest.mark.parametrize("env_key", ENVS)
async def test_leaving_out_any_call_that_changes_something_fails(env_key: str) -> None:
    for task in tasks_of(env_key, 60):
        calls = await calls_of(task)
        assert (await replay(task, calls)).score == 1.0
        for at, call in enumerate(calls):
            grade = await replay(task, [*calls[:at], *calls[at + 1 :]])
            assert grade.score == (0.0 if changes_something(call) else 1.0), (task.key, call.name)


@pytest.mark.parametrize("env_key", ENVS)
async def test_a_number_that_is_one_too_large_fails(env_key: str) -> None:
    for task in tasks_of(env_key, 60):
        calls = await calls_of(task)
        for at, call in enumerate(calls):
            numbers = {n: v + 1 for n, v in call.arguments.items() if isinstance(v, int)}
            if changes_something(call) and numbers:
                wrong = replace(call, arguments={**call.arguments, **numbers})
                grade = await replay(task, [*calls[:at], wrong, *calls[at + 1 :]])
                assert grade.score == 0.0, (task.key, wrong)


@pytest.mark.parametrize(
    ("env_key", "search"),
    [
        ("booking", "search_hotels"),
        ("reddit", "search_posts"),
        ("ticketmaster", "search_events"),
        ("ticketmaster", "list_seats"),
        ("fira", "list_sprints"),
        ("hubspot", "list_reps"),
        ("zillow", "find_homes"),
        ("zillow", "list_alerts"),
        ("zillow", "list_lenders"),
        ("zillow", "list_slots"),
    ],
)
async def test_acting_on_the_wrong_row_fails(env_key: str, search: str) -> None:
    choices = 0
    for task in tasks_of(env_key, 120):
        grade, chose = await play_last_row(task, search)
        choices += chose
        assert grade.score == (0.0 if chose else 1.0), task.key
    assert choices > 20


async def test_any_free_room_that_is_large_enough_will_do() -> None:
    choices = 0
    for task in tasks_of("booking", 60):
        grade, chose = await play_last_row(task, "list_rooms")
        choices += chose
        assert grade.score == 1.0, task.key
    assert choices > 50


SIDE_EFFECTS: dict[str, tuple[str, str, str, dict[str, JsonValue]]] = {
    "booking": ("bookings", "booking", "cancel_booking", {}),
    "github": ("issues", "issue", "label_issue", {"label": "bug"}),
    "outlook": ("mails", "mail", "move_mail", {"folder": "archive"}),
    "reddit": ("posts", "post", "upvote", {}),
    "ticketmaster": ("offers", "seat", "hold_seats", {"count": 2}),
    "fira": ("tickets", "ticket", "plan_ticket", {"sprint": "backlog"}),
    "hubspot": ("deals", "deal", "set_deal", {"amount": 55}),
    "zillow": ("homes", "home", "book_tour", {"date": "2027-01-04", "slot": "09:00"}),
}
"""Per app: a table, the argument that names a row of it, and a call that changes one."""


@pytest.mark.parametrize("env_key", ENVS)
async def test_one_change_too_many_fails(env_key: str) -> None:
    table, argument, tool, fixed = SIDE_EFFECTS[env_key]
    for task in tasks_of(env_key, 80):
        row_id = bystander(task, table)
        grade, results = await play_then(
            task, ToolCall(name=tool, arguments={argument: row_id, **fixed})
        )
        assert not results[-1].is_error, (task.key, results[-1])
        assert grade.score == 0.0, task.key


def may_change(row: Mapping[str, JsonValue], user: str) -> bool:
    """Tell whether the call in `SIDE_EFFECTS` is allowed on a row, as far as the row says."""
    if row.get("author") == user or row.get("status") == "under contract":
        return False
    is_planned = row.get("status") == "todo" and row["sprint"] != "backlog"
    return is_planned if "sprint" in row else row.get("stage") not in CLOSED


def bystander(task: Task, table: str) -> str | int:
    """Id of a row that the task does not touch and the user may change."""
    tables, wanted = task.payload["tables"], json.dumps(task.payload["changes"])
    assert isinstance(tables, dict)
    rows = tables[table]
    assert isinstance(rows, list)
    for row in rows:
        assert isinstance(row, dict)
        row_id = row["id"]
        assert isinstance(row_id, str | int)
        is_free = may_change(row, task.env_variables["LOGGED_IN_USER"])
        if is_free and f'"{row_id}"' not in wanted and f'"issue": {row_id}' not in wanted:
            return row_id
    raise AssertionError(f"{task.key} leaves no {table} alone")


@pytest.mark.parametrize("env_key", ENVS)
async def test_an_error_text_is_no_substitute_for_the_id_that_a_search_gives(env_key: str) -> None:
    for task in tasks_of(env_key, 30):
        env = await started(task)
        for tool in APPS[env_key].tools:
            properties = tool.spec.parameters["properties"]
            assert isinstance(properties, dict)
            guess = {
                name: 1 if isinstance(kind, dict) and kind["type"] == "integer" else "nosuch"
                for name, kind in properties.items()
            }
            await env.call(tool.spec.name, guess)
        assert (await env.score()).score == 0.0


def test_making_and_playing_an_episode_costs_under_a_millisecond() -> None:
    import asyncio  # noqa: PLC0415 - only this test owns a loop

    tasks = minifleet_tasks(ENVS, "train", 60, 11)

    async def everything() -> None:
        for task in tasks:
            app = APPS[task.env_key]
            template = next(each for each in app.templates if each.name == task.template)
            again = make_task(app, template, "train", int(task.key[-6:]))
            await play(again)

    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        asyncio.run(everything())
        best = min(best, (time.process_time() - begin) / len(tasks))
    assert best < 1e-3
