"""No answer from the environment."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.envs.answers import SILENCE, ScriptedAnswer
from tests.hillclimb.stats.trajectories.labelled.material.refusals.others import FAULTS
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import (
    admit,
    claim_done,
    end_somehow,
    end_well,
    go_on,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "no_environment_response"


async def _no_call_answered(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 7)):
        await agent.turn(agent.lookup().answered(SILENCE))
    await end_somehow(agent)


async def _blank_answers(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 5)):
        blank = agent.rng.choice(("", " ", "\n", "\t\n  "))
        await agent.turn(answered(agent.lookup(), blank))
    await end_somehow(agent)


async def _exactly_half(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 4)):
        pair = [agent.lookup(), agent.lookup().answered(SILENCE)]
        agent.rng.shuffle(pair)
        for step in pair:
            await agent.turn(step)
    await end_somehow(agent)


async def _silent_from_some_point(agent: Agent) -> None:
    before = agent.rng.randint(1, 3)
    await agent.look(before)
    for _ in range(before + agent.rng.randint(0, 4)):
        await agent.turn(answered(agent.lookup(), agent.rng.choice((None, ""))))
    await end_somehow(agent)


async def _one_call(agent: Agent) -> None:
    await agent.turn(agent.lookup().answered(SILENCE))
    await agent.rng.choice((admit, claim_done, end_somehow))(agent)


async def _retried(agent: Agent) -> None:
    step = agent.lookup().answered(SILENCE)
    for _ in range(agent.rng.randint(3, 6)):
        await agent.turn(step)
    await end_somehow(agent)


async def _executed_unheard(agent: Agent) -> None:
    while agent.plan.left:
        await agent.turn(agent.next_call.answered(ScriptedAnswer(text="", acts=True)))
        agent.accept()
    await end_well(agent)


async def _fewer_than_half(agent: Agent) -> None:
    silent = agent.rng.randint(1, 3)
    steps = [agent.lookup().answered(SILENCE) for _ in range(silent)]
    steps += [agent.lookup() for _ in range(silent + agent.rng.randint(1, 2))]
    agent.rng.shuffle(steps)
    for step in steps:
        await agent.turn(step)
    await go_on(agent)


async def _terse_answers(agent: Agent) -> None:
    for text in agent.rng.sample(("[]", "{}", "null", "ok", "[]", "{}"), agent.rng.randint(2, 6)):
        await agent.turn(answered(agent.lookup(), text))
    await end_somehow(agent)


async def _interrupted(agent: Agent) -> None:
    await agent.look(agent.rng.randint(0, 1))
    await agent.turn(agent.lookup().answered(SILENCE))
    await agent.stop(StopReason.INFRA_ERROR)


async def _ended_by_the_app(agent: Agent) -> None:
    await agent.look(agent.rng.randint(0, 1))
    await agent.turn(agent.next_call.answered(ScriptedAnswer(text=None, ends_episode=True)))
    await agent.stop(StopReason.ENV_ENDED)


async def _no_call_made(agent: Agent) -> None:
    for _ in range(agent.rng.randint(1, 3)):
        await agent.say("I am waiting for the environment to respond.")
    await admit(agent)


async def _only_errors(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 5)):
        await agent.turn(refused(agent, agent.lookup(), Refusal.OTHER, FAULTS))
    await end_somehow(agent)


async def _empty_results(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 4)):
        text = agent.rng.choice(("no match", "(no output)", "0", "no rows"))
        await agent.turn(answered(agent.lookup(), text))
    await end_somehow(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="no-call-answered", play=_no_call_answered, times=6),
    Script(family=FAMILY, kind="blank-answers", play=_blank_answers),
    Script(family=FAMILY, kind="exactly-half", play=_exactly_half),
    Script(family=FAMILY, kind="silent-from-some-point", play=_silent_from_some_point, times=6),
    Script(family=FAMILY, kind="one-call", play=_one_call),
    Script(family=FAMILY, kind="retried", play=_retried),
    Script(family=FAMILY, kind="executed-unheard", play=_executed_unheard),
    Script(family=FAMILY, kind="fewer-than-half", play=_fewer_than_half, is_near_miss=True),
    Script(family=FAMILY, kind="terse-answers", play=_terse_answers, is_near_miss=True),
    Script(family=FAMILY, kind="interrupted", play=_interrupted, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="ended-by-the-app",
        play=_ended_by_the_app,
        is_near_miss=True,
        setting=Setting(dialect="plain"),
    ),
    Script(family=FAMILY, kind="no-call-made", play=_no_call_made, is_near_miss=True),
    Script(family=FAMILY, kind="only-errors", play=_only_errors, is_near_miss=True),
    Script(family=FAMILY, kind="empty-results", play=_empty_results, is_near_miss=True),
)
