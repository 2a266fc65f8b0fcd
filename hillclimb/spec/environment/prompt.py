"""The section `prompt`: what the policy reads, and how its turns are read."""

from __future__ import annotations

from typing import Literal

from hillclimb.spec.section import Section


class PromptSpec(Section):
    """The prompt style of all rollouts of a run."""

    style: Literal["hillclimb", "skyrl"] = "hillclimb"
    """`hillclimb`: our own prompt and rules. `skyrl`: the system message of SkyRL's Fleet
    environment and its rules for calls, ends, answers and grades, for policies that were trained or
    prompted there; a turn ends at `</tool_call>` (docs/prompts.md)."""
