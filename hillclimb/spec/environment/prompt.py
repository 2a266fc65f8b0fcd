"""The section `prompt`: what the policy reads, and how its turns are read."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from hillclimb.spec.section import Section, reject_unused


class PromptSpec(Section):
    """The prompt style of all rollouts of a run."""

    style: Literal["hillclimb", "skyrl"] = "hillclimb"
    """`hillclimb`: our own prompt and rules. `skyrl`: the system message of SkyRL's Fleet
    environment and its rules for calls, ends, answers and grades, for policies that were trained or
    prompted there; a turn ends at `</tool_call>` (docs/prompts.md)."""
    version: Literal["1", "2"] = "1"
    """Order of the lines of `hillclimb`. `1`: the task's date and variables before the tools, as
    the shipped models were trained. `2`: role, tools and instructions first, so that engines
    compute them once for all tasks of an environment; for large models, whose lists of tools have
    thousands of tokens."""

    tool_format: Literal["hillclimb", "native"] = "hillclimb"
    """Form of tools, calls and answers. `hillclimb`: in our words, one form for all models, as the
    shipped models were trained. `native`: that of the model's own chat template, so that the tokens
    of a rollout are those of the template's rendering, and a policy that any chat server serves
    reads what it was trained on; the template has to keep the turns of a tool loop as they are."""
    thinking: bool | None = None
    """Thinking of models whose chat template has a switch for it (`enable_thinking`), such as
    Qwen3's: false begins every turn with an empty thought. null: the template's default."""

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        reject_unused(self, ("version", "tool_format"), only=("style", "hillclimb"))
        return self
