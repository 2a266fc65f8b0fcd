"""Calls that a platform refuses in its own words."""

from __future__ import annotations

from dataclasses import replace

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer
from tests.hillclimb.stats.trajectories.labelled.envs.dialect import IDENTIFIERS
from tests.hillclimb.stats.trajectories.labelled.material.refusals.arguments import ARGUMENTS
from tests.hillclimb.stats.trajectories.labelled.material.refusals.missing import MISSING
from tests.hillclimb.stats.trajectories.labelled.material.refusals.others import OTHERS
from tests.hillclimb.stats.trajectories.labelled.material.refusals.permission import PERMISSION
from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import Wording, answers

_WORDINGS = {
    Refusal.ARGUMENTS: ARGUMENTS,
    Refusal.PERMISSION: PERMISSION,
    Refusal.MISSING: MISSING,
    Refusal.OTHER: OTHERS,
}
_NOUNS = {
    "booking": "hotel",
    "github": "issue",
    "outlook": "mail",
    "reddit": "post",
    "ticketmaster": "event",
    "fira": "ticket",
    "hubspot": "deal",
    "zillow": "home",
}
"""What an app mostly is about."""


def refused(agent: Agent, step: Step, refusal: Refusal, wordings: tuple[Wording, ...] = ()) -> Step:
    """Return the step with a refusal of some platform in the place of the app's answer."""
    name, value = next(iter(step.arguments.items()), ("filter", "all"))
    details = {
        "tool": step.name,
        "argument": agent.dialect.spell(name),
        "value": str(value),
        "noun": name if name in IDENTIFIERS else _NOUNS[agent.task.env_key],
    }
    pool = wordings or _WORDINGS[refusal]
    refusals = answers(pool, agent.rng, details, may_mark=agent.marks_errors)
    return step.answered(refusals[0], refusal)


def answered(step: Step, text: str | None) -> Step:
    """Return the step with a successful answer of the script."""
    return step.answered(ScriptedAnswer(text=text))


def verbatim(step: Step) -> Step:
    """Return the step whose arguments are the platform's, not the app's."""
    return replace(step, is_verbatim=True)
