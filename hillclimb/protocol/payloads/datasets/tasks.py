"""Payloads of the tasks of a version."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hillclimb.protocol.payloads.base import Payload


class TaskPayload(Payload):
    """One task of a version, with its split; its JSON leaves out what the task does not have."""

    key: str
    prompt: str
    env_key: str
    env_version: str | None = None
    data_key: str | None = None
    data_version: str | None = None
    env_variables: dict[str, Any] = Field(default_factory=dict)
    verifier_code: str | None = None
    task_modality: str = "tool_use"
    difficulty: int | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    split: Literal["train", "eval", "excluded"]
    reason: str | None
    """Reason of an exclusion; null for the others."""


class TaskList(Payload):
    """One page of tasks, by key."""

    object: Literal["list"] = "list"
    data: list[TaskPayload]
    has_more: bool
    next_cursor: str | None
    name: str
    """Name of the dataset."""
    number: int
    """Number of the version."""
