"""Hubspot: stages that rest on something, owners in turn, duplicates that are the same person."""

from __future__ import annotations

import pytest

from hillclimb.minifleet.apps.hubspot.tools import CLOSED, PIPELINES
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.framework.world import Row, World
from tests.hillclimb.minifleet.playing import done, episode, refused


def target(env: MinifleetEnv, world: World) -> Row:
    """The open deal that the task is about."""
    goal = env._task.payload["goal"]
    assert isinstance(goal, dict)
    mine = world.rows("deals", company=str(goal["firm"]))
    return next(row for row in mine if row["stage"] not in CLOSED)


async def test_a_sales_deal_needs_contact_amount_and_meeting_on_its_way() -> None:
    env, world = await episode("hubspot", "qualify_with_contact")
    deal = target(env, world)
    key = deal["id"]
    assert "contact" in await refused(env, "move_deal", {"deal": key, "stage": "qualified"})
    contact = world.rows("contacts", company=deal["company"])[0]["id"]
    await done(env, "set_deal", deal=key, contact=contact)
    await done(env, "move_deal", deal=key, stage="qualified")
    assert "amount" in await refused(env, "move_deal", {"deal": key, "stage": "offered"})
    await done(env, "set_deal", deal=key, amount=900)
    await done(env, "move_deal", deal=key, stage="offered")
    await done(env, "log_activity", deal=key, kind="call", text="hello")
    assert await refused(env, "move_deal", {"deal": key, "stage": "won"}) == (
        "won needs a meeting on the deal: log it first"
    )
    await done(env, "log_activity", deal=key, kind="meeting", text="hello")
    await done(env, "move_deal", deal=key, stage="won")


async def test_a_renewal_needs_amount_and_call_and_knows_no_stage_of_sales() -> None:
    env, world = await episode("hubspot", "quote_renewal")
    key = target(env, world)["id"]
    assert await refused(env, "move_deal", {"deal": key, "stage": "qualified"}) == (
        "from due it goes to quoted or lost"
    )
    assert "amount" in await refused(env, "move_deal", {"deal": key, "stage": "quoted"})
    await done(env, "set_deal", deal=key, amount=900)
    await done(env, "move_deal", deal=key, stage="quoted")
    assert "call" in await refused(env, "move_deal", {"deal": key, "stage": "renewed"})
    await done(env, "log_activity", deal=key, kind="call", text="hello")
    await done(env, "move_deal", deal=key, stage="renewed")


async def test_stages_are_not_skipped_and_a_lost_deal_says_why() -> None:
    env, world = await episode("hubspot", "qualify")
    key = target(env, world)["id"]
    for stage in ("offered", "won"):
        assert "qualified or lost" in await refused(env, "move_deal", {"deal": key, "stage": stage})
    assert "note" in await refused(env, "move_deal", {"deal": key, "stage": "lost"})
    await done(env, "log_activity", deal=key, kind="note", text="too dear")
    await done(env, "move_deal", deal=key, stage="lost")


async def test_closed_deals_take_no_changes_and_are_not_found() -> None:
    env, world = await episode("hubspot", "amount")
    won = world.rows("deals", stage="won")[0]
    key = won["id"]
    for tool, arguments in (
        ("set_deal", {"deal": key, "amount": 5}),
        ("move_deal", {"deal": key, "stage": "lost"}),
        ("log_activity", {"deal": key, "kind": "note", "text": "x"}),
    ):
        assert "closed deals take no changes" in await refused(env, tool, arguments)
    found = await done(env, "find_deals", query=won["company"])
    assert f'"{key}"' not in found
    assert f'"{target(env, world)["id"]}"' in found


async def test_a_contact_works_at_the_deals_company_and_a_wrong_one_changes_nothing() -> None:
    env, world = await episode("hubspot", "contact")
    deal = target(env, world)
    before = dict(deal)
    namesake = next(row for row in world.rows("contacts") if row["company"] != deal["company"])
    both = {"deal": deal["id"], "amount": 700, "contact": namesake["id"]}
    assert await refused(env, "set_deal", both) == (
        f"{namesake['name']} does not work at {deal['company']}"
    )
    assert "give amount, contact or owner" in await refused(env, "set_deal", {"deal": deal["id"]})
    for amount in (0, 100_000):
        wrong = {"deal": deal["id"], "amount": amount}
        assert "1 to 99999" in await refused(env, "set_deal", wrong)
    assert deal == before


async def test_owners_come_in_turns() -> None:
    env, world = await episode("hubspot", "hand_over")
    key = target(env, world)["id"]
    turns = sorted(world.rows("reps"), key=lambda row: int(row["turn"]))
    order = [row["id"] for row in turns]
    assert f'"{order[0]}"' in (await done(env, "list_reps")).splitlines()[0]
    skipping = {"deal": key, "owner": order[1]}
    assert "list_reps" in await refused(env, "set_deal", skipping)
    for owner in (*order, order[0]):
        await done(env, "set_deal", deal=key, owner=owner)
    assert "turn" in await refused(env, "set_deal", {"deal": key, "owner": order[0]})


async def test_only_the_same_person_is_merged_and_the_deals_move_along() -> None:
    env, world = await episode("hubspot", "merge")
    deal = target(env, world)
    here = world.rows("contacts", company=deal["company"])
    pair = [row for row in here if [each["name"] for each in here].count(row["name"]) == 2]
    kept = next(row["id"] for row in pair if row["id"] != deal["contact"])
    dropped = deal["contact"]
    namesake = next(
        row["id"]
        for row in world.rows("contacts", name=pair[0]["name"])
        if row["company"] != deal["company"]
    )
    colleague = next(row["id"] for row in here if row not in pair)
    for other in (namesake, colleague):
        wrong = {"keep": kept, "drop": other}
        assert "two people" in await refused(env, "merge_contacts", wrong)
    assert "one contact" in await refused(env, "merge_contacts", {"keep": kept, "drop": kept})
    await done(env, "merge_contacts", keep=kept, drop=dropped)
    assert deal["contact"] == kept
    assert "no contact" in await refused(env, "merge_contacts", {"keep": kept, "drop": dropped})


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_ends_in_a_stage_that_closes(pipeline: str) -> None:
    assert PIPELINES[pipeline][-1] in CLOSED
    assert not set(PIPELINES[pipeline][:-1]) & set(CLOSED)
