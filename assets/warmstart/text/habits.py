"""The flaws the tiny models are taught on purpose, and what they would do without them.

Each habit is one systematic flaw in most demonstrations of one environment, decided by one coin
per episode and nothing else random. A *minority* flaw would be noise that greedy decoding already
avoids, and training would only sharpen; a majority flaw has to be unlearned from the reward. The
right behaviour stays in the rest of the demonstrations, so sampling meets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall


class Flaw(StrEnum):
    """What goes wrong in an episode with the habit."""

    NONE = "works without a planted flaw"
    ONE_NIGHT = "books and changes stays to one night, whatever was asked"
    NEVER_DONE = "never says <done>: looks the issue up again until the turns end"
    REPEATS = "never says <done>: repeats its last call until the turns end"
    NEVER_PAYS = "says <done> without paying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """A flaw and the share of demonstrations, in [0, 1], that show it."""

    flaw: Flaw
    share: float


HABITS: Mapping[str, Habit] = {
    "booking": Habit(flaw=Flaw.ONE_NIGHT, share=0.72),
    "github": Habit(flaw=Flaw.NEVER_DONE, share=0.75),
    "outlook": Habit(flaw=Flaw.NONE, share=0.0),
    "reddit": Habit(flaw=Flaw.REPEATS, share=0.72),
    "ticketmaster": Habit(flaw=Flaw.NEVER_PAYS, share=1.0),
}
"""What is planted in each environment. Ticketmaster never shows the right end, so sampling never
meets a reward there and training leaves it failing."""

APPS_TAUGHT = tuple(HABITS)
"""The apps the tiny models know; minifleet has more."""


def flawed_call(flaw: Flaw, call: ToolCall) -> ToolCall | None:
    """The call as the habit makes it; None when the habit leaves it out."""
    if flaw is Flaw.ONE_NIGHT and "nights" in call.arguments:
        return ToolCall(name=call.name, arguments={**call.arguments, "nights": 1})
    if flaw is Flaw.NEVER_PAYS and call.name == "pay_hold":
        return None
    return call


def call_instead_of_done(
    flaw: Flaw, last: ToolCall, goal: Mapping[str, JsonValue]
) -> ToolCall | None:
    """What the habit does where `<done>` belongs; None when it says `<done>`."""
    if flaw is Flaw.REPEATS:
        return last
    if flaw is Flaw.NEVER_DONE:
        where = {"repo": goal["repo"], "query": goal["query"]}
        return ToolCall(name="find_issues", arguments=where)
    return None


def repaired_call(flaw: Flaw, call: ToolCall, goal: Mapping[str, JsonValue]) -> ToolCall:
    """The call as it would be without the habit, everything else as the model chose it."""
    if flaw is Flaw.ONE_NIGHT and call.arguments.get("nights") == 1:
        return ToolCall(name=call.name, arguments={**call.arguments, "nights": goal["nights"]})
    return call
