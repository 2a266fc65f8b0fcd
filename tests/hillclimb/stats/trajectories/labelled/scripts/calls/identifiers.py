"""Identifiers that the policy has not seen: made up, guessed, or changed."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

from pydantic import JsonValue

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer
from tests.hillclimb.stats.trajectories.labelled.material.guesses import unshown
from tests.hillclimb.stats.trajectories.labelled.scripts.calls.missing import ghost_step
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, end_somehow, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "hallucinated_parameter"
_NAMES = ("id", "record_id", "recordId", "item_ref", "order_number", "account_key", "promo_code")
_OK = '{"ok": true}'


def _verbatim(
    agent: Agent, arguments: dict[str, JsonValue], *, invents: bool, tool: str | None = None
) -> Step:
    """Return a call in the platform's own words, which the script answers."""
    return Step(
        name=tool or agent.rng.choice(("get_record", "archive_record", "open_record")),
        arguments=arguments,
        invented=frozenset(arguments) if invents else frozenset(),
        answer=ScriptedAnswer(text=_OK),
        is_verbatim=True,
    )


def _made_up(agent: Agent) -> JsonValue:
    number = agent.rng.randrange(10_000, 99_999)
    return agent.rng.choice(
        (
            number,
            str(number),
            f"H-{number}",
            f"usr_{number}x",
            f"ABC{number}",
            str(uuid.UUID(int=agent.rng.getrandbits(128), version=4)),
        )
    )


async def _ghost(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(ghost_step(agent))
    await go_on(agent)


async def _before_any_lookup(agent: Agent) -> None:
    await agent.turn(ghost_step(agent))
    await end_somehow(agent)


async def _made_up_and_accepted(agent: Agent) -> None:
    await agent.look(agent.rng.randint(0, 3))
    arguments = {agent.rng.choice(_NAMES): _made_up(agent)}
    await agent.turn(_verbatim(agent, arguments, invents=True))
    await go_on(agent)


async def _thought_of_first(agent: Agent) -> None:
    value = str(_made_up(agent))
    thought = Thought((f"The number of the entry should be {value}",))
    await agent.turn(agent.lookup(), thought=thought)
    await agent.turn(_verbatim(agent, {"record_id": value}, invents=True))
    await end_somehow(agent)


async def _one_of_a_list(agent: Agent) -> None:
    await agent.advance()
    seen = agent.identifier()
    values: list[JsonValue] = [seen, _made_up(agent)]
    agent.rng.shuffle(values)
    name = agent.rng.choice(("ids", "record_ids", "recordIds"))
    await agent.turn(_verbatim(agent, {name: values}, invents=True))
    await go_on(agent)


async def _deep_inside(agent: Agent) -> None:
    inner: JsonValue = {"filter": {"owner": {"user_id": _made_up(agent)}}}
    if agent.rng.random() < 0.5:
        inner = {"items": [{"quantity": 1, "record_id": _made_up(agent)}]}
    await agent.turn(_verbatim(agent, {"query": inner}, invents=True))
    await go_on(agent)


async def _cut_or_extended(agent: Agent) -> None:
    """Change a seen identifier by a character."""
    await agent.advance()
    seen = str(agent.identifier())
    changed = (f"{seen}7", f"{seen}b", f"x{seen}", f"{seen}{seen}", seen.swapcase()[1:] + "0")
    value = agent.rng.choice([each for each in changed if agent.is_unknown(each)])
    await agent.turn(_verbatim(agent, {"record_id": value}, invents=True))
    await go_on(agent)


async def _guessed_rightly(agent: Agent) -> None:
    """Name a thing that exists and was not shown."""
    choices = [each for each in unshown(agent.task) if agent.is_unknown(each.arguments[each.which])]
    guess = agent.rng.choice(choices)
    invented = frozenset((guess.which,))
    await agent.turn(Step(name=guess.tool, arguments=guess.arguments, invented=invented))
    await agent.look(agent.rng.randint(0, 3))
    await end_somehow(agent)


def _near(
    arguments: Callable[[Agent], dict[str, JsonValue]], *, advances: bool = True
) -> Callable[[Agent], Awaitable[None]]:
    async def play(agent: Agent) -> None:
        if advances:
            await agent.advance()
        await agent.turn(_verbatim(agent, arguments(agent), invents=False))
        await go_on(agent)

    return play


def _as_text(agent: Agent) -> dict[str, JsonValue]:
    return {"record_id": str(agent.identifier())}


def _in_another_case(agent: Agent) -> dict[str, JsonValue]:
    return {"recordId": str(agent.identifier()).upper()}


def _from_variables(agent: Agent) -> dict[str, JsonValue]:
    name = agent.rng.choice(("user_id", "userId", "owner_key"))
    return {name: agent.task.env_variables["LOGGED_IN_USER"]}


def _no_identifier(agent: Agent) -> dict[str, JsonValue]:
    number = agent.rng.randrange(10_000, 99_999)
    choices: list[dict[str, JsonValue]] = [
        {"paid": number},
        {"valid": f"until {number}"},
        {"grid": f"g{number}"},
        {"bid": number, "void": False},
        {"humid": f"{number} g"},
    ]
    return agent.rng.choice(choices)


def _text_dates_amounts(agent: Agent) -> dict[str, JsonValue]:
    amount = agent.rng.randrange(10_000, 99_999)
    return {
        "title": f"Plan {amount} for the winter",
        "due": "2027-11-30",
        "amount": amount,
        "quantity": amount + 1,
        "query": f"h{amount}",
    }


def _all_seen(agent: Agent) -> dict[str, JsonValue]:
    seen = agent.identifier()
    return {"ids": [seen, str(seen)], "body": {"parent_id": seen}}


async def _from_a_reply(agent: Agent) -> None:
    number = agent.rng.randrange(10_000, 99_999)
    await agent.say("Which record is meant?", reply=f"The user answers: record {number}.")
    await agent.turn(_verbatim(agent, {"record_number": number}, invents=False))
    await go_on(agent)


async def _from_an_error(agent: Agent) -> None:
    number = f"R{agent.rng.randrange(10_000, 99_999)}"
    step = refused(agent, agent.lookup(), Refusal.OTHER)
    text = f"Error: the entry has moved, use {number} from now on"
    answer = ScriptedAnswer(text=text, is_error=agent.marks_errors)
    await agent.turn(replace(step, answer=answer))
    await agent.turn(_verbatim(agent, {"record_ref": number}, invents=False))
    await go_on(agent)


async def _seen_long_ago(agent: Agent) -> None:
    await agent.advance()
    seen = agent.identifier()
    await agent.look(agent.rng.randint(5, 9))
    await agent.turn(_verbatim(agent, {"record_id": seen}, invents=False))
    await go_on(agent)


async def _expert(agent: Agent) -> None:
    await go_on(agent)


_NAMING = Setting(dialect="naming")
_LISTS = Setting(dialect="plain", min_calls=2)


def _near_miss(kind: str, play: Callable[[Agent], Awaitable[None]]) -> Script:
    return Script(family=FAMILY, kind=kind, play=play, is_near_miss=True, setting=_LISTS)


SCRIPTS = (
    Script(family=FAMILY, kind="ghost", play=_ghost, setting=_NAMING, times=8),
    Script(family=FAMILY, kind="before-any-lookup", play=_before_any_lookup, setting=_NAMING),
    Script(family=FAMILY, kind="made-up-and-accepted", play=_made_up_and_accepted, times=8),
    Script(family=FAMILY, kind="thought-of-first", play=_thought_of_first),
    Script(family=FAMILY, kind="one-of-a-list", play=_one_of_a_list, setting=_LISTS),
    Script(family=FAMILY, kind="deep-inside", play=_deep_inside, times=5),
    Script(family=FAMILY, kind="cut-or-extended", play=_cut_or_extended, setting=_LISTS, times=6),
    Script(family=FAMILY, kind="guessed-rightly", play=_guessed_rightly, setting=_NAMING, times=6),
    _near_miss("number-as-text", _near(_as_text)),
    _near_miss("in-another-case", _near(_in_another_case)),
    _near_miss("from-variables", _near(_from_variables, advances=False)),
    _near_miss("no-identifier", _near(_no_identifier, advances=False)),
    _near_miss("text-dates-amounts", _near(_text_dates_amounts, advances=False)),
    _near_miss("all-seen", _near(_all_seen)),
    _near_miss("from-a-reply", _from_a_reply),
    _near_miss("from-an-error", _from_an_error),
    _near_miss("seen-long-ago", _seen_long_ago),
    Script(
        family=FAMILY,
        kind="named-as-shown",
        play=_expert,
        is_near_miss=True,
        setting=Setting(dialect="naming", min_calls=2),
        times=8,
    ),
)
