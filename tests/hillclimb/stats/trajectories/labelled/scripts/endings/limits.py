"""The turn limit, and a conversation that no longer fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer
from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import body, formed
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import (
    begin,
    claim_done,
    end_well,
    spoil,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

TURNS, LENGTH = "max_turns", "context_overflow"
_LIMITS = (8, 10, 12, 16)
_TURN_LIMIT = (
    formed("Error: maximum number of turns reached"),
    body(error="max_turns exceeded for this session"),
    formed("Error: turn limit (50) hit, please summarise"),
)
_LENGTH_LISTED = (
    '{"entries": [{"level": "warn", "text": "context_length_exceeded: maximum is 32768 tokens"}]}',
    "- note 4, text prompt exceeds max_input_length, by nobody",
    '{"title": "input is too long for the requested model", "state": "open"}',
)

Play = Callable[[Agent], Awaitable[None]]


async def _fill(agent: Agent, limit: int) -> None:
    """Look around until the turn limit is near."""
    await agent.look(max(0, limit - agent.num_turns))


async def _looks_around(agent: Agent) -> None:
    await _fill(agent, agent.rng.choice(_LIMITS))
    await agent.stop(StopReason.MAX_TURNS)


async def _in_the_middle(agent: Agent) -> None:
    await agent.look()
    await begin(agent)
    await agent.stop(StopReason.MAX_TURNS)


async def _right_but_not_done(agent: Agent) -> None:
    await _fill(agent, agent.rng.choice(_LIMITS) - agent.plan.left)
    await agent.solve()
    await agent.stop(StopReason.MAX_TURNS)


async def _wrong_at_the_limit(agent: Agent) -> None:
    await _fill(agent, 6)
    await spoil(agent)
    await agent.stop(StopReason.MAX_TURNS)


async def _last_turn_is_text(agent: Agent) -> None:
    await _fill(agent, agent.rng.choice(_LIMITS) - 1)
    await agent.say("I will go on with the next entry.")
    await agent.stop(StopReason.MAX_TURNS)


async def _done_on_the_last_turn(agent: Agent) -> None:
    limit = agent.rng.choice(_LIMITS)
    await _fill(agent, limit - 1 - agent.plan.left)
    await agent.solve()
    await end_well(agent)


async def _long_and_done(agent: Agent) -> None:
    await _fill(agent, agent.rng.choice((18, 24)))
    await agent.solve(but=agent.rng.randint(0, 1))
    await claim_done(agent)


def _stops(reason: StopReason) -> Play:
    async def play(agent: Agent) -> None:
        await _fill(agent, agent.rng.choice(_LIMITS))
        await agent.stop(reason)

    return play


def _cut(turns: tuple[int, int]) -> Play:
    async def play(agent: Agent) -> None:
        await _fill(agent, agent.rng.randint(*turns))
        await agent.cut(agent.muse(agent.rng.randint(4, 9)), text=agent.rng.choice(("", "So")))

    return play


async def _ended_by_the_app(agent: Agent) -> None:
    await _fill(agent, agent.rng.choice(_LIMITS) - 1)
    text = '{"status": "closed", "note": "the episode is over"}'
    answer = ScriptedAnswer(text=text, ends_episode=True)
    await agent.turn(agent.lookup().answered(answer))
    await agent.stop(StopReason.ENV_ENDED)


async def _words_about_turns(agent: Agent) -> None:
    await agent.turn(refused(agent, agent.lookup(), Refusal.OTHER, _TURN_LIMIT))
    await agent.solve(but=agent.rng.randint(0, 1))
    await agent.finish("I stop here because the maximum number of turns is reached.")


async def _words_about_length(agent: Agent) -> None:
    await agent.turn(answered(agent.lookup(), agent.rng.choice(_LENGTH_LISTED)))
    await agent.solve(but=agent.rng.randint(0, 1))
    await agent.finish("My context window is full, so I stop here.")


async def _long_answers(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 4)):
        await agent.turn(answered(agent.lookup(), _long_listing(agent)))
    await agent.stop(StopReason.MAX_INPUT_LENGTH)


async def _one_huge_answer(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(answered(agent.lookup(), _long_listing(agent) * 3))
    await agent.stop(StopReason.MAX_INPUT_LENGTH)


async def _right_but_too_long(agent: Agent) -> None:
    await agent.solve()
    await _fill(agent, 9)
    await agent.stop(StopReason.MAX_INPUT_LENGTH)


async def _long_talk(agent: Agent) -> None:
    for _ in range(agent.rng.randint(5, 9)):
        await agent.turn(agent.lookup(), text=agent.muse(agent.rng.randint(2, 5)).text)
    await agent.stop(StopReason.MAX_INPUT_LENGTH)


async def _long_answers_and_done(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 4)):
        await agent.turn(answered(agent.lookup(), _long_listing(agent) * 2))
    await agent.solve()
    await end_well(agent)


async def _not_started(agent: Agent) -> None:
    await agent.stop(StopReason.NOT_STARTED)


def _long_listing(agent: Agent) -> str:
    rows = (f'{{"row":{n},"note":"{agent.muse().text}"}}' for n in range(agent.rng.randint(15, 25)))
    return "\n".join(rows)


def _near(family: str, kind: str, play: Play) -> Script:
    return Script(family=family, kind=kind, play=play, is_near_miss=True)


SCRIPTS = (
    Script(family=TURNS, kind="looks-around", play=_looks_around, times=6),
    Script(family=TURNS, kind="in-the-middle", play=_in_the_middle, times=5),
    Script(family=TURNS, kind="right-but-not-done", play=_right_but_not_done, times=5),
    Script(family=TURNS, kind="wrong-at-the-limit", play=_wrong_at_the_limit, times=5),
    Script(family=TURNS, kind="last-turn-is-text", play=_last_turn_is_text),
    _near(TURNS, "done-on-the-last-turn", _done_on_the_last_turn),
    _near(TURNS, "long-and-done", _long_and_done),
    _near(TURNS, "slow", _stops(StopReason.POLICY_DEADLINE)),
    _near(TURNS, "cut", _cut((6, 11))),
    _near(TURNS, "ended-by-the-app", _ended_by_the_app),
    _near(TURNS, "infra-error", _stops(StopReason.INFRA_ERROR)),
    _near(TURNS, "too-long", _stops(StopReason.MAX_INPUT_LENGTH)),
    _near(TURNS, "words-about-turns", _words_about_turns),
    Script(family=LENGTH, kind="long-answers", play=_long_answers, times=6),
    Script(family=LENGTH, kind="one-huge-answer", play=_one_huge_answer, times=5),
    Script(family=LENGTH, kind="right-but-too-long", play=_right_but_too_long, times=5),
    Script(family=LENGTH, kind="long-talk", play=_long_talk, times=5),
    Script(family=LENGTH, kind="many-turns", play=_stops(StopReason.MAX_INPUT_LENGTH), times=5),
    _near(LENGTH, "cut", _cut((0, 3))),
    _near(LENGTH, "turn-limit", _stops(StopReason.MAX_TURNS)),
    _near(LENGTH, "slow", _stops(StopReason.POLICY_DEADLINE)),
    _near(LENGTH, "long-answers-and-done", _long_answers_and_done),
    _near(LENGTH, "words-about-length", _words_about_length),
    _near(LENGTH, "not-started", _not_started),
)
