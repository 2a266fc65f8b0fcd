"""`<done>` before anything was done."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.envs.answers import SILENCE
from tests.hillclimb.stats.trajectories.labelled.material.closings import NEITHER
from tests.hillclimb.stats.trajectories.labelled.material.replies import UNREADABLE
from tests.hillclimb.stats.trajectories.labelled.material.titles import search_title
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import admit, claim_done, end_well
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "premature_done"


async def _say_done(agent: Agent) -> None:
    match agent.rng.randrange(4):
        case 0:
            await claim_done(agent)
        case 1:
            await admit(agent)
        case 2:
            await agent.finish(agent.rng.choice(NEITHER))
        case _:
            await agent.finish()


async def _at_once(agent: Agent) -> None:
    await _say_done(agent)


async def _after_one_lookup(agent: Agent) -> None:
    await agent.look()
    await _say_done(agent)


async def _in_the_turn_of_the_call(agent: Agent) -> None:
    await agent.turn(agent.lookup(), is_done=True)


async def _after_refusals(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 4)):
        kind = agent.rng.choice(list(Refusal))
        await agent.turn(refused(agent, agent.lookup(), kind))
    await agent.look(agent.rng.randint(0, 1))
    await _say_done(agent)


async def _after_silence(agent: Agent) -> None:
    await agent.look(1)
    for _ in range(agent.rng.randint(1, 3)):
        await agent.turn(agent.lookup().answered(SILENCE))
    await _say_done(agent)


async def _after_an_unreadable_call(agent: Agent) -> None:
    await agent.unreadable(agent.rng.choice(UNREADABLE))
    await agent.look(agent.rng.randint(0, 1))
    await _say_done(agent)


async def _after_talk(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 3)):
        await agent.say(agent.rng.choice(NEITHER))
    await _say_done(agent)


async def _after_two_calls(agent: Agent) -> None:
    await agent.look(2)
    await _say_done(agent)


async def _one_call_was_enough(agent: Agent) -> None:
    await agent.solve()
    await end_well(agent)


async def _another_stop(agent: Agent) -> None:
    if agent.rng.random() < 0.5:
        await agent.look()
    else:
        await agent.say(agent.rng.choice(NEITHER))
    reasons = (StopReason.MAX_TURNS, StopReason.POLICY_DEADLINE, StopReason.MAX_INPUT_LENGTH)
    await agent.stop(agent.rng.choice(reasons))


async def _no_grade(agent: Agent) -> None:
    await agent.look(agent.rng.randint(0, 1))
    await _say_done(agent)


async def _two_successes_among_refusals(agent: Agent) -> None:
    steps = [agent.lookup(), agent.lookup()]
    steps += [refused(agent, agent.lookup(), Refusal.OTHER) for _ in range(3)]
    agent.rng.shuffle(steps)
    for step in steps:
        await agent.turn(step)
    await _say_done(agent)


async def _two_answers_that_mention_errors(agent: Agent) -> None:
    await agent.turn(Step.of(search_title(agent.task, agent.title, agent.rng)))
    await agent.look()
    await _say_done(agent)


async def _all_but_the_last(agent: Agent) -> None:
    await agent.solve(but=1)
    await _say_done(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="at-once", play=_at_once, times=6),
    Script(family=FAMILY, kind="after-one-lookup", play=_after_one_lookup, times=5),
    Script(family=FAMILY, kind="in-the-turn-of-the-call", play=_in_the_turn_of_the_call),
    Script(family=FAMILY, kind="after-refusals", play=_after_refusals, times=8),
    Script(family=FAMILY, kind="after-silence", play=_after_silence),
    Script(family=FAMILY, kind="after-an-unreadable-call", play=_after_an_unreadable_call),
    Script(family=FAMILY, kind="after-talk", play=_after_talk),
    Script(family=FAMILY, kind="after-two-calls", play=_after_two_calls, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="one-call-was-enough",
        play=_one_call_was_enough,
        is_near_miss=True,
        setting=Setting(
            apps=("github", "reddit", "zillow"),
            templates=("open", "post", "save_search", "approval"),
        ),
    ),
    Script(family=FAMILY, kind="another-stop", play=_another_stop, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="no-grade",
        play=_no_grade,
        is_near_miss=True,
        setting=Setting(grades=False),
    ),
    Script(
        family=FAMILY,
        kind="two-successes-among-refusals",
        play=_two_successes_among_refusals,
        is_near_miss=True,
    ),
    Script(
        family=FAMILY,
        kind="two-answers-that-mention-errors",
        play=_two_answers_that_mention_errors,
        is_near_miss=True,
        times=6,
        setting=Setting(titles="errors"),
    ),
    Script(
        family=FAMILY,
        kind="all-but-the-last",
        play=_all_but_the_last,
        is_near_miss=True,
        setting=Setting(min_calls=3),
    ),
)
