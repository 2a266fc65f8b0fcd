"""Answers that a script puts in the place of the environment's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedAnswer:
    """What the policy reads instead of the environment's answer to one call."""

    text: str | None
    """None: no answer comes."""
    is_error: bool = False
    acts: bool = False
    """The environment executes the call all the same."""
    ends_episode: bool = False


SILENCE = ScriptedAnswer(text=None)
