"""Compares the environment keys of a run with those of its dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.datasets.errors import DatasetUnusable
from hillclimb.spec.data import DatasetRef
from hillclimb.spec.run import RunSpec


def refuse_strange_keys(spec: RunSpec, reference: DatasetRef, table: Mapping[str, Any]) -> None:
    """Refuse tasks that minifleet cannot make, before a machine is taken for them.

    Raises:
        DatasetUnusable: a task has no key of minifleet's form.
    """
    if spec.environment.provider != "minifleet":
        return
    for key, facts in table.items():
        used = facts["train"] + facts["eval"]
        strange = used - facts.get("with_minifleet_key", used)  # older versions did not count them
        if strange:
            raise DatasetUnusable(
                f"{strange} of {used} tasks of {key} in {reference} are none that minifleet has:"
                " its keys are ENV/SPLIT/TEMPLATE/NUMBER, as `hillclimb fleet tasks` writes them."
                " Set environment.provider to where they are played, such as fleet"
            )
