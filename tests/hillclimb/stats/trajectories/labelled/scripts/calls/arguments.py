"""Calls refused because of their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hillclimb.environment.base import ToolCall
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.material.mistakes import misshapen
from tests.hillclimb.stats.trajectories.labelled.material.refusals.missing import MISSING
from tests.hillclimb.stats.trajectories.labelled.material.refusals.permission import PERMISSION
from tests.hillclimb.stats.trajectories.labelled.material.replies import UNREADABLE
from tests.hillclimb.stats.trajectories.labelled.scripts.calls import bystanders
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, end_somehow, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "argument_validation"


def _misshapen(*kinds: str) -> Callable[[Agent], Awaitable[None]]:
    async def play(agent: Agent) -> None:
        while True:
            call = ToolCall(name=agent.next_call.name, arguments=agent.next_call.arguments)
            wrong = misshapen(call, agent.task, agent.rng)
            chosen = [wrong[kind] for kind in kinds if kind in wrong]
            if chosen and (agent.plan.left == 1 or agent.rng.random() < 0.5):
                break
            if agent.plan.left == 1:
                chosen = [wrong["unknown"]]
                break
            await agent.advance()
        for arguments in chosen:
            step = Step(name=call.name, arguments=arguments, refusal=Refusal.ARGUMENTS)
            await agent.turn(step)
        await go_on(agent)

    return play


async def _unreadable(agent: Agent) -> None:
    await begin(agent)
    await agent.unreadable(agent.rng.choice(UNREADABLE), text="Calling the tool now.")
    await go_on(agent)


async def _in_other_words(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(refused(agent, agent.next_call, Refusal.ARGUMENTS))
    await go_on(agent)


async def _in_other_words_twice(agent: Agent) -> None:
    for _ in range(2):
        await agent.turn(refused(agent, agent.lookup(), Refusal.ARGUMENTS))
        await agent.look(agent.rng.randint(0, 1))
    await end_somehow(agent)


async def _reply_to_a_turn_without_call(agent: Agent) -> None:
    await begin(agent)
    reply = "Invalid message: a tool call is required, argument 'tool_call' is missing."
    await agent.say("Let me think about the arguments.", reply=reply)
    await go_on(agent)


async def _schema_listed(agent: Agent) -> None:
    text = (
        '{"fields": [{"name": "title", "type": "string", "required": true},'
        ' {"name": "count", "type": "integer", "minimum": 1, "invalid_values": []}]}'
    )
    await agent.turn(answered(agent.lookup(), text))
    await go_on(agent)


async def _invalid_credentials(agent: Agent) -> None:
    wordings = tuple(each for each in PERMISSION if "Invalid" in each.text or "valid" in each.text)
    await begin(agent)
    await agent.turn(refused(agent, agent.next_call, Refusal.PERMISSION, wordings))
    await end_somehow(agent)


async def _required_record_missing(agent: Agent) -> None:
    wordings = tuple(
        each for each in MISSING if "required" in each.text or "invalid_request" in each.text
    )
    await begin(agent)
    await agent.turn(refused(agent, agent.next_call, Refusal.MISSING, wordings))
    await end_somehow(agent)


_OWN = Setting(dialect="plain")

SCRIPTS = (
    Script(family=FAMILY, kind="left-out", play=_misshapen("missing"), setting=_OWN, times=8),
    Script(family=FAMILY, kind="unknown", play=_misshapen("unknown"), setting=_OWN, times=6),
    Script(family=FAMILY, kind="of-another-type", play=_misshapen("type"), setting=_OWN, times=8),
    Script(family=FAMILY, kind="out-of-range", play=_misshapen("range"), setting=_OWN, times=8),
    Script(family=FAMILY, kind="not-a-choice", play=_misshapen("choice"), setting=_OWN, times=8),
    Script(
        family=FAMILY,
        kind="twice",
        play=_misshapen("missing", "type"),
        setting=_OWN,
    ),
    Script(family=FAMILY, kind="unreadable", play=_unreadable, times=6),
    Script(family=FAMILY, kind="in-other-words", play=_in_other_words, times=24),
    Script(family=FAMILY, kind="in-other-words-twice", play=_in_other_words_twice, times=8),
    *bystanders.scripts(FAMILY, titles="arguments", own_refusal=Refusal.ARGUMENTS),
    Script(
        family=FAMILY,
        kind="reply-to-a-turn-without-call",
        play=_reply_to_a_turn_without_call,
        is_near_miss=True,
    ),
    Script(family=FAMILY, kind="schema-listed", play=_schema_listed, is_near_miss=True),
    Script(family=FAMILY, kind="invalid-credentials", play=_invalid_credentials, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="required-record-missing",
        play=_required_record_missing,
        is_near_miss=True,
    ),
)
