"""Calls that name something which does not exist."""

from __future__ import annotations

from dataclasses import replace

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.material.mistakes import ghost
from tests.hillclimb.stats.trajectories.labelled.scripts.calls import bystanders
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, end_somehow, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "not_found"
_EMPTY = (
    "[]",
    "no match",
    '{"results": [], "total": 0}',
    '{"count": 0, "message": "No entries matched your search."}',
    "No results.",
    '{"ok": true, "error": null, "data": []}',
    "0 rows",
    '{"data": null, "errors": []}',
    "Nothing found for this query. Try another word.",
)
_NUMBERS = (
    '{"room": 404, "status": "booked", "floor": 4}',
    '{"issue": 404, "title": "slow start", "state": "open"}',
    '{"id": 404, "ok": true}',
    "Room 404 is free from Monday.",
    '{"price": 404, "currency": "EUR", "found": true}',
)


def ghost_step(agent: Agent) -> Step:
    """Return a call that names a thing which the app does not have."""
    name, arguments, which = ghost(agent.task, agent.rng, agent.seen)
    return Step(
        name=name,
        arguments=arguments,
        refusal=Refusal.MISSING,
        invented=frozenset((which,)),
    )


async def _no_such_thing(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(ghost_step(agent))
    await go_on(agent)


async def _several(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 4)):
        await agent.turn(ghost_step(agent))
        await agent.look(agent.rng.randint(0, 1))
    await end_somehow(agent)


async def _in_other_words(agent: Agent) -> None:
    await begin(agent)
    step = ghost_step(agent)
    await agent.turn(refused(agent, step, Refusal.MISSING))
    await go_on(agent)


async def _gone_meanwhile(agent: Agent) -> None:
    await agent.solve(but=1)
    await agent.turn(refused(agent, agent.next_call, Refusal.MISSING))
    await end_somehow(agent)


async def _empty_result(agent: Agent) -> None:
    await agent.turn(answered(agent.lookup(), agent.rng.choice(_EMPTY)))
    await agent.look(agent.rng.randint(0, 1))
    await go_on(agent)


async def _number_404(agent: Agent) -> None:
    await agent.turn(answered(agent.lookup(), agent.rng.choice(_NUMBERS)))
    await go_on(agent)


async def _no_match_of_the_app(agent: Agent) -> None:
    step = agent.lookup()
    field = next(name for name in step.arguments if name in ("query", "name"))
    for word in agent.rng.sample(("zzyzx", "qqq", "xylophone", "404"), 2):
        await agent.turn(replace(step, arguments={**step.arguments, field: word}))
    await go_on(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="no-such-thing", play=_no_such_thing, times=12),
    Script(
        family=FAMILY,
        kind="no-such-identifier",
        play=_no_such_thing,
        times=8,
        setting=Setting(dialect="naming"),
    ),
    Script(family=FAMILY, kind="several", play=_several, times=6),
    Script(family=FAMILY, kind="in-other-words", play=_in_other_words, times=24),
    Script(family=FAMILY, kind="gone-meanwhile", play=_gone_meanwhile, times=8),
    *bystanders.scripts(FAMILY, titles="missing", own_refusal=Refusal.MISSING),
    Script(family=FAMILY, kind="empty-result", play=_empty_result, is_near_miss=True, times=8),
    Script(family=FAMILY, kind="number-404", play=_number_404, is_near_miss=True, times=5),
    Script(
        family=FAMILY,
        kind="no-match-of-the-app",
        play=_no_match_of_the_app,
        is_near_miss=True,
    ),
)
