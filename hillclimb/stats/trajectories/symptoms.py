"""Symptoms: yes-or-no properties of rollouts by whose share an issue is measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hillclimb.stats.trajectories.patterns.registry import PATTERNS

FAILURE = "failure"
OUTCOME_SYMPTOMS: Mapping[str, str] = MappingProxyType(
    {
        FAILURE: "it has a grade and did not pass",
        "tool_error": "the environment answered at least one call with an error",
        "repeated_call": "it made a call equal to the one just before",
        "turn_too_long": "one turn used up its token limit",
        "infra_error": "the environment or a service failed",
        "ungraded": "it has no grade, though the environment did not fail",
    }
)
"""Symptoms that every stored outcome shows or does not, with their definitions."""
SYMPTOMS: Mapping[str, str] = MappingProxyType(
    {**{name: each.definition for name, each in PATTERNS.items()}, **OUTCOME_SYMPTOMS}
)
"""All symptoms with their definitions: the failure patterns and those of outcomes."""
