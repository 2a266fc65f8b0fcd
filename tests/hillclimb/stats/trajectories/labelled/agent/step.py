"""One call of a script, with what the script knows about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Refusal
from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call in the app's own words."""

    name: str
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    refusal: Refusal | None = None
    """Reason for which it is going to be refused."""
    invented: frozenset[str] = frozenset()
    """Arguments whose value the policy has not seen."""
    answer: ScriptedAnswer | None = None
    """In the place of the environment's."""
    is_verbatim: bool = False
    """The arguments are those of the platform; the app does not know them."""

    @classmethod
    def of(cls, call: ToolCall) -> Step:
        """Return the step of an expert's call."""
        return cls(name=call.name, arguments=call.arguments)

    def answered(self, answer: ScriptedAnswer, refusal: Refusal | None = None) -> Step:
        """Return the step with an answer of the script."""
        return replace(self, answer=answer, refusal=refusal)

    def refused(self, refusal: Refusal) -> Step:
        """Return the step that the app itself refuses."""
        return replace(self, refusal=refusal)
