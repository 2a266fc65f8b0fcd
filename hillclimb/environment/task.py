"""A task: one problem posed to the agent in one environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem posed to the agent in one environment.

    Example:
        Task(key="booking-train-00017", env_key="booking", template="hotel_cheapest",
             prompt="Book the cheapest hotel in Brno for 3 nights.", difficulty=2,
             env_variables={"CURRENT_DATE": "2026-03-14", "LOGGED_IN_USER": "mira@post.example"},
             payload={"seed": 17})
    """

    key: str
    env_key: str
    prompt: str
    """Prompt; empty where only the environment has it, after its reset."""
    template: str
    """Its generator; `held_out_template` marks those that no train task has."""
    difficulty: int | None
    """1 (one dependency) to 3 (several entities and a rule of the app); null: unknown."""
    modality: str = "tool_use"
    """`tool_use`, or how else the agent acts (`hillclimb.datasets.format.rows.Modality`)."""
    held_out_template: bool = False
    env_variables: Mapping[str, str] = field(default_factory=dict)
    """Shown to the model: at least CURRENT_DATE (ISO date) and LOGGED_IN_USER. Those of a dataset
    that are not text stand in the payload under the same name, for the platform."""
    payload: Mapping[str, JsonValue] = field(default_factory=dict)
    """Data of the environment for its start state and verifier; not shown to the model."""
