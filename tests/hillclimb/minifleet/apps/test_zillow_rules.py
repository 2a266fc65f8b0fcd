"""Zillow: nobody is in two places, money is approved before it is offered, searches are few."""

from __future__ import annotations

import json

from pydantic import JsonValue

from hillclimb.minifleet.apps.zillow.tools import SLOTS
from hillclimb.minifleet.env import MinifleetEnv
from tests.hillclimb.minifleet.playing import done, episode, refused


def goal_of(env: MinifleetEnv) -> dict[str, str]:
    goal = env._task.payload["goal"]
    assert isinstance(goal, dict)
    return {name: str(value) for name, value in goal.items()}


async def home_of(env: MinifleetEnv, query: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((await done(env, "find_homes", query=query)).split("\n")[0])
    return found


async def test_a_tour_needs_a_slot_in_which_agent_and_buyer_are_free() -> None:
    env, world = await episode("zillow", "tour_first")
    goal = goal_of(env)
    home = (await home_of(env, goal["query"]))["home"]
    agent = world.tables["homes"][home]["agent"]
    free = await done(env, "list_slots", home=home, date=goal["date"])
    for tour in list(world.rows("tours")):
        assert f'"{tour["slot"]}"' not in free
        wanted = {"home": home, "date": goal["date"], "slot": tour["slot"]}
        who = "you tour" if tour["buyer"] == world.user else f"{agent} shows"
        assert (await refused(env, "book_tour", wanted)).startswith(f"{who} {tour['home']} then")
    assert len(free.splitlines()) == len(SLOTS) - 2
    assert len((await done(env, "list_slots", home=home, date="2027-01-04")).splitlines()) == 3


async def test_a_second_tour_of_a_home_moves_the_first() -> None:
    env, world = await episode("zillow", "move_tour")
    goal = goal_of(env)
    home = (await home_of(env, goal["query"]))["home"]
    count = len(world.rows("tours"))
    for day in ("2027-01-04", "2027-01-04", "2027-01-05"):
        text = await done(env, "book_tour", home=home, date=day, slot=SLOTS[0])
        assert '"moved"' in text
    assert len(world.rows("tours")) == count
    past = {"home": home, "date": "2025-01-04", "slot": SLOTS[0]}
    assert "past" in await refused(env, "book_tour", past)
    assert "past" in await refused(env, "list_slots", {"home": home, "date": "2025-01-04"})
    assert "like" in await refused(env, "list_slots", {"home": home, "date": "soon"})


async def test_homes_under_contract_are_not_found_toured_or_bought() -> None:
    env, world = await episode("zillow", "tour_cheapest")
    taken = world.rows("homes", status="under contract")[0]
    assert await done(env, "find_homes", query=taken["address"]) == "no match"
    tour = {"home": taken["id"], "date": "2027-01-04", "slot": SLOTS[0]}
    offer = {"home": taken["id"], "price": taken["price"]}
    assert await refused(env, "book_tour", tour) == "home is under contract"
    assert await refused(env, "make_offer", offer) == "home is under contract"


async def test_large_offers_rest_on_an_approval_that_covers_them() -> None:
    env, world = await episode("zillow", "approval_and_offer")
    price = int(goal_of(env)["price"])
    home = (await home_of(env, goal_of(env)["query"]))["home"]
    offer: dict[str, JsonValue] = {"home": home, "price": price}
    assert "need an approval" in await refused(env, "make_offer", offer)
    lender = next(row for row in world.rows("lenders") if int(row["limit"]) >= price)
    await done(env, "get_approval", lender=lender["id"], amount=price - 1)
    assert "covers" in await refused(env, "make_offer", offer)
    await done(env, "get_approval", lender=lender["id"], amount=price)
    await done(env, "make_offer", **offer)
    assert len(world.rows("approvals", lender=lender["id"])) == 1


async def test_a_lender_approves_up_to_its_limit_and_is_listed_by_rate() -> None:
    env, world = await episode("zillow", "approval_lowest_rate")
    amount = int(goal_of(env)["amount"])
    by_rate = sorted(world.rows("lenders"), key=lambda row: int(row["rate"]))
    listed = await done(env, "list_lenders", amount=amount)
    assert [json.loads(row)["lender"] for row in listed.splitlines()] == [
        row["id"] for row in by_rate[1:]
    ]
    too_much: dict[str, JsonValue] = {"lender": by_rate[0]["id"], "amount": amount}
    assert f"1 to {by_rate[0]['limit']}" in await refused(env, "get_approval", too_much)
    assert "no lender" in await refused(env, "get_approval", {"lender": "nosuch", "amount": 1})
    assert await done(env, "list_lenders", amount=99_999) == "nobody lends that"


async def test_offers_start_near_the_asking_price_and_only_go_up() -> None:
    env, world = await episode("zillow", "offer")
    found = await home_of(env, goal_of(env)["query"])
    home, asking = found["home"], int(found["price"])
    floor = -(-9 * asking // 10)
    low: dict[str, JsonValue] = {"home": home, "price": floor - 1}
    assert await refused(env, "make_offer", low) == f"offers for it start at {floor} thousand"
    await done(env, "make_offer", home=home, price=floor)
    assert "higher" in await refused(env, "make_offer", {"home": home, "price": floor})
    assert '"raised"' in await done(env, "make_offer", home=home, price=floor + 1)
    assert [row["price"] for row in world.rows("offers", buyer=world.user)] == [floor + 1]


async def test_three_different_searches_are_saved_and_alerts_show_the_newest_first() -> None:
    env, world = await episode("zillow", "save_search")
    assert await done(env, "list_alerts") == "your saved searches find no home"
    goal = goal_of(env)
    price = int(goal["limit"])
    wanted: dict[str, JsonValue] = {"city": goal["city"], "beds": int(goal["beds"]), "price": price}
    await done(env, "save_search", **wanted)
    assert "before" in await refused(env, "save_search", wanted)
    shown = [json.loads(row)["home"] for row in (await done(env, "list_alerts")).splitlines()]
    days = [world.tables["homes"][home]["days"] for home in shown]
    assert len(days) == 2
    assert days == sorted(days)
    assert "no homes in" in await refused(env, "save_search", {**wanted, "city": "Nosuch"})
    assert "beds must be" in await refused(env, "save_search", {**wanted, "beds": 0})
    for lower in (201, 202):
        await done(env, "save_search", **{**wanted, "price": lower})
    assert "3 saved searches" in await refused(env, "save_search", {**wanted, "price": 203})
