"""The same call with the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.envs.answers import SILENCE
from tests.hillclimb.stats.trajectories.labelled.material.lookups import rows_of
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import end_somehow, end_well, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused, verbatim
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "tool_repetition"


async def _in_a_row(agent: Agent) -> None:
    await agent.look(agent.rng.randint(0, 2))
    step = agent.lookup()
    for _ in range(agent.rng.randint(3, 5)):
        await agent.turn(step)
    await go_on(agent)


async def _scattered(agent: Agent) -> None:
    step = agent.lookup()
    for _ in range(agent.rng.randint(3, 4)):
        await agent.turn(step)
        await agent.look(agent.rng.randint(1, 3))
    await go_on(agent)


async def _another_order_of_keys(agent: Agent) -> None:
    step = agent.lookup()
    turned = replace(step, arguments=dict(reversed(list(step.arguments.items()))))
    for each in (step, turned, step):
        await agent.turn(each)
        await agent.look(agent.rng.randint(0, 1))
    await go_on(agent)


async def _refused_alike(agent: Agent) -> None:
    kind = agent.rng.choice((Refusal.ARGUMENTS, Refusal.PERMISSION, Refusal.MISSING, Refusal.OTHER))
    step = refused(agent, agent.lookup(), kind)
    for _ in range(agent.rng.randint(3, 6)):
        await agent.turn(step)
    await end_somehow(agent)


async def _unanswered(agent: Agent) -> None:
    step = agent.lookup().answered(SILENCE)
    await agent.look(2)
    for _ in range(3):
        await agent.turn(step)
        await agent.look(1)
    await end_somehow(agent)


async def _in_one_turn(agent: Agent) -> None:
    step = agent.lookup()
    await agent.turn(*[step] * agent.rng.randint(3, 4))
    await go_on(agent)


async def _the_same_change(agent: Agent) -> None:
    await agent.solve(but=1)
    step = agent.next_call
    for _ in range(agent.rng.randint(3, 4)):
        await agent.turn(step)
    await end_well(agent)


async def _until_the_end(agent: Agent) -> None:
    step = agent.lookup()
    for _ in range(agent.rng.randint(6, 12)):
        await agent.turn(step)
    await agent.stop(StopReason.MAX_TURNS)


async def _before_a_change(agent: Agent) -> None:
    step = agent.lookup()
    for _ in range(3):
        await agent.turn(answered(step, '{"state":"queued","position":4}'))
    await agent.turn(answered(step, '{"state":"running"}'))
    await go_on(agent)


async def _twice(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 3)):
        step = agent.lookup()
        await agent.turn(step)
        await agent.look(agent.rng.randint(0, 1))
        await agent.turn(step)
    await go_on(agent)


async def _paging(agent: Agent) -> None:
    step = agent.lookup()
    pages = agent.rng.randint(3, 6)
    name = agent.rng.choice(("page", "offset", "cursor"))
    for page in range(pages):
        value = f"c{page}=" if name == "cursor" else page
        arguments = {**agent.dialect.write(step.arguments), name: value}
        text = '{"items": [], "more": true}' if page < pages - 1 else '{"items": []}'
        await agent.turn(answered(verbatim(replace(step, arguments=arguments)), text))
    await go_on(agent)


async def _polling(agent: Agent) -> None:
    step = agent.lookup()
    states = ["queued", "queued", "running", "running", "finished"]
    for position, state in enumerate(states[agent.rng.randrange(2) :]):
        text = f'{{"state":"{state}","log_lines":{position // 2}}}'
        await agent.turn(answered(step, text))
    await go_on(agent)


async def _read_again_after_changes(agent: Agent) -> None:
    find = agent.next_call
    await agent.advance()
    row = agent.rows()[0]
    for change in _changes(agent, row):
        await agent.turn(change)
        await agent.turn(find)
    await end_somehow(agent)


def _changes(agent: Agent, row: Mapping[str, JsonValue]) -> list[Step]:
    """Return two changes that the search shows."""
    if agent.task.env_key == "hubspot":
        deal = row["deal"]
        amounts = (4100, 4200)
        return [Step(name="set_deal", arguments={"deal": deal, "amount": n}) for n in amounts]
    issue = row["issue"]
    members = [each["id"] for each in rows_of(agent.task, "members")]
    others = [member for member in members if member != row["assignee"]]
    return [
        Step(name="assign_issue", arguments={"issue": issue, "user": user}) for user in others[:2]
    ]


async def _slightly_other_arguments(agent: Agent) -> None:
    step = agent.lookup()
    name = next(key for key in step.arguments if key in ("query", "name"))
    word = str(step.arguments[name])
    for variant in (word, word.upper(), word.capitalize(), word[:-1])[: agent.rng.randint(3, 4)]:
        await agent.turn(replace(step, arguments={**step.arguments, name: variant}))
    await go_on(agent)


async def _other_tools(agent: Agent) -> None:
    step = agent.lookup()
    for name in (step.name, f"count_{step.name}", f"{step.name}_v2", f"explain_{step.name}"):
        await agent.turn(answered(replace(step, name=name), "nothing to show"))
    await go_on(agent)


async def _alternating(agent: Agent) -> None:
    first, second = agent.lookup(), agent.lookup()
    for step in (first, second, first, second):
        await agent.turn(step)
    await go_on(agent)


_CHANGES_AGAIN = Setting(
    apps=("github", "outlook", "reddit", "hubspot"),
    templates=(
        "label",
        "assign",
        "comment",
        "label_mine",
        "take",
        "move_subject",
        "move_sender",
        "upvote_top",
        "upvote_title",
        "amount",
        "amount_company",
    ),
)
_READS_AGAIN = Setting(
    apps=("github", "hubspot"), templates=("label", "comment", "amount", "offer"), dialect="plain"
)

SCRIPTS = (
    Script(family=FAMILY, kind="in-a-row", play=_in_a_row, times=5),
    Script(family=FAMILY, kind="scattered", play=_scattered, times=5),
    Script(
        family=FAMILY,
        kind="another-order-of-keys",
        play=_another_order_of_keys,
        setting=Setting(apps=("booking", "github", "reddit")),
    ),
    Script(family=FAMILY, kind="refused-alike", play=_refused_alike, times=5),
    Script(family=FAMILY, kind="unanswered", play=_unanswered),
    Script(family=FAMILY, kind="in-one-turn", play=_in_one_turn),
    Script(family=FAMILY, kind="the-same-change", play=_the_same_change, setting=_CHANGES_AGAIN),
    Script(family=FAMILY, kind="until-the-end", play=_until_the_end),
    Script(family=FAMILY, kind="before-a-change", play=_before_a_change),
    Script(family=FAMILY, kind="twice", play=_twice, is_near_miss=True),
    Script(family=FAMILY, kind="paging", play=_paging, is_near_miss=True),
    Script(family=FAMILY, kind="polling", play=_polling, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="read-again-after-changes",
        play=_read_again_after_changes,
        is_near_miss=True,
        setting=_READS_AGAIN,
    ),
    Script(
        family=FAMILY,
        kind="slightly-other-arguments",
        play=_slightly_other_arguments,
        is_near_miss=True,
    ),
    Script(family=FAMILY, kind="other-tools", play=_other_tools, is_near_miss=True),
    Script(family=FAMILY, kind="alternating", play=_alternating, is_near_miss=True),
)
