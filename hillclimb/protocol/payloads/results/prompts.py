"""Payloads of a run's prompts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.environments import EnvPrompts, PromptText, TokenSpread
from hillclimb.protocol.payloads.base import Payload


class TokenSpreadPayload(TokenSpread, Payload):
    """Minimum, median and maximum of token counts."""


class EnvPromptsPayload(EnvPrompts, Payload):
    """The prompts of all tasks of one environment, training and evaluation."""

    system_tokens: TokenSpreadPayload
    tools_tokens: TokenSpreadPayload
    task_tokens: TokenSpreadPayload
    total_tokens: TokenSpreadPayload


class PromptTextPayload(PromptText, Payload):
    """One task's prompt as the model reads it, with its token counts."""


class PromptsPayload(Payload):
    """The prompts of a run's newest attempt."""

    object: Literal["prompts"] = "prompts"
    run_id: str
    attempt: int | None
    at: datetime
    step: int
    version: str
    """Version of the prompt wording."""
    max_input_length: int
    environments: dict[str, EnvPromptsPayload]
    file: str
    """Key of the file of the prompts stored in full, relative to the run."""
    texts: list[PromptTextPayload]
    """Prompts stored in full, of the requested environment and task."""
