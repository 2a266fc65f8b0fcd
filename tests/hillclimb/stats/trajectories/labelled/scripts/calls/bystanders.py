"""Near misses that refusals of any reason have in common: the words are there, the refusal is not.

Data that mention the refusal, the policy's own words, refusals for other reasons, and answers with
an empty place for an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.material.refusals.others import FAULTS, STATE
from tests.hillclimb.stats.trajectories.labelled.material.titles import search_title
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered, refused
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

_WORRIES: Mapping[Refusal, tuple[str, ...]] = {
    Refusal.ARGUMENTS: (
        "The call may fail with an invalid argument error if the number is text.",
        "A missing required field would give a validation error here.",
        "I must not send an unknown parameter: that is a 422.",
    ),
    Refusal.PERMISSION: (
        "I am not authorized to decide this for the user, but the request is clear.",
        "If the app says permission denied, I will stop.",
        "A 401 or 403 would mean that the session has expired.",
    ),
    Refusal.MISSING: (
        "If the entry is not found, I will tell the user.",
        "There may be no such entry, in which case the app answers 404.",
        "Perhaps this does not exist any more.",
    ),
}
_LISTINGS = (
    "Found 2:\n 1. {title}\n 2. something else",
    '{{"items": [{{"name": "{title}", "open": true}}], "next": null}}',
    '[{{"kind": "entry", "text": "{title}"}}]',
    "| number | title |\n|---|---|\n| 7 | {title} |",
    'The newest entry is "{title}".',
)


async def _data_mention_it(agent: Agent) -> None:
    await begin(agent)
    step = Step.of(search_title(agent.task, agent.title, agent.rng))
    await agent.turn(step)
    assert agent.title.casefold() in (agent.last_answer or "").casefold().replace("\\", "")
    await go_on(agent)


async def _listing_mentions_it(agent: Agent) -> None:
    title = agent.title.replace('"', "'")
    text = agent.rng.choice(_LISTINGS).format(title=title)
    await agent.turn(answered(agent.lookup(), text))
    await go_on(agent)


async def _other_refusal(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(refused(agent, agent.next_call, Refusal.OTHER, STATE + FAULTS))
    await agent.look(agent.rng.randint(0, 1))
    await go_on(agent)


async def _rule_of_the_app(agent: Agent) -> None:
    """Break a rule of the app that depends on its state, which the app itself refuses."""
    wrong: Step | None = None
    while wrong is None:
        made = agent.next_call
        await agent.advance()
        wrong = _against_a_rule(agent, made)
    await agent.turn(wrong.refused(Refusal.OTHER))
    await go_on(agent)


def _against_a_rule(agent: Agent, made: Step) -> Step | None:
    """Return a call that a rule forbids after the one that was made."""
    row = agent.rows()[0]
    match made.name:
        case "book_room" | "hold_seats":
            return made
        case "find_tickets" if row["status"] == "todo":
            date = agent.task.env_variables["CURRENT_DATE"]
            arguments = {"ticket": row["ticket"], "hours": 1, "date": date}
            return Step(name="log_work", arguments=arguments)
    return None


async def _empty_place_for_an_error(agent: Agent) -> None:
    await agent.look(agent.rng.randint(1, 3))
    await go_on(agent)


def _own_words(refusal: Refusal) -> Callable[[Agent], Awaitable[None]]:
    async def play(agent: Agent) -> None:
        worry = agent.rng.choice(_WORRIES[refusal])
        if agent.rng.random() < 0.5:
            await agent.turn(agent.lookup(), text=worry)
        else:
            await agent.turn(agent.lookup(), thought=Thought((worry,)))
        await go_on(agent)

    return play


_RULES = Setting(
    apps=("booking", "ticketmaster", "fira"),
    templates=(
        "best_date_guest",
        "named_date_guest",
        "artist_reworded",
        "start",
        "plan",
    ),
)


def scripts(family: str, *, titles: str, own_refusal: Refusal) -> tuple[Script, ...]:
    """Return the near misses of one reason."""
    titled = Setting(titles=titles)

    def near(kind: str, play: Callable[[Agent], Awaitable[None]], setting: Setting) -> Script:
        return Script(family=family, kind=kind, play=play, is_near_miss=True, setting=setting)

    return (
        Script(
            family=family,
            kind="data-mention-it",
            play=_data_mention_it,
            is_near_miss=True,
            times=10,
            setting=titled,
        ),
        near("listing-mentions-it", _listing_mentions_it, titled),
        near("other-refusal", _other_refusal, Setting()),
        near("empty-place-for-an-error", _empty_place_for_an_error, Setting(dialect="null_errors")),
        near("rule-of-the-app", _rule_of_the_app, _RULES),
        near("own-words", _own_words(own_refusal), Setting()),
    )
