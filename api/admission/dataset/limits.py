"""The tasks that `data.modality` and `data.max_tasks` leave of a dataset version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.admission.dataset.rules import listed
from api.datasets.errors import DatasetUnusable
from hillclimb.spec.data import limited_counts
from hillclimb.spec.run import RunSpec

Table = Mapping[str, Mapping[str, Any]]
"""Counts of tasks by environment, as `EnvCounts` of the version."""


def counts_of_modality(spec: RunSpec, table: Table) -> dict[str, dict[str, Any]]:
    """Return the environments that have tasks of `data.modality`, with the counts of those.

    Raises:
        DatasetUnusable: `data.env_keys` names an environment without such tasks, or one whose
            version did not count them.
    """
    modality, named = spec.data.modality, spec.data.env_keys
    if modality is None:
        return {key: dict(facts) for key, facts in table.items()}
    counts = {
        key: _of_modality(key, facts, modality)
        for key, facts in table.items()
        if facts["modalities"].get(modality) and (not named or key in named)
    }
    bare = [key for key in named if key in table and key not in counts]
    if bare:
        raise DatasetUnusable(
            f"data.env_keys names {listed(bare)}, which has no {modality} task in"
            f" {spec.data.dataset}: remove it"
        )
    if not counts:
        raise DatasetUnusable(f"{spec.data.dataset} has no {modality} task")
    return counts


def without_tasks(spec: RunSpec, table: Table, available: Table) -> list[str]:
    """Return a warning for each environment that `data.modality` leaves out."""
    left_out = sorted(set(table) - set(available))
    return [f"{key} is left out: it has no {spec.data.modality} task." for key in left_out]


def limit_train(spec: RunSpec, table: Table) -> dict[str, dict[str, Any]]:
    """Return the table with the training tasks that `data.max_tasks` leaves.

    Raises:
        DatasetUnusable: it leaves an environment none.
    """
    train = {key: facts["train"] for key, facts in table.items()}
    try:
        limited = limited_counts(train, spec.data.max_tasks)
    except ValueError as error:
        raise DatasetUnusable(f"with the tasks of {spec.data.dataset}: {error}") from error
    return {key: {**facts, "train": limited[key]} for key, facts in table.items()}


def _of_modality(key: str, facts: Mapping[str, Any], modality: str) -> dict[str, Any]:
    if set(facts["modalities"]) == {modality}:
        return dict(facts)
    counts = facts.get("by_modality", {}).get(modality)
    if counts is None:
        raise DatasetUnusable(
            f"{key} has tasks of several modalities, and this version is too old to say how many of"
            f" each are for training: create a version with filters.modality {modality}, or remove"
            f" {key} from data.env_keys"
        )
    return {**facts, **counts, "modalities": {modality: facts["modalities"][modality]}}
