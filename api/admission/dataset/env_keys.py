"""Compares the environment keys of a run with those of its dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.datasets.errors import DatasetUnusable
from hillclimb.spec.data import DatasetRef
from hillclimb.spec.run import RunSpec


def refuse_foreign_keys(spec: RunSpec, reference: DatasetRef, table: Mapping[str, Any]) -> None:
    """Reject tasks that minifleet cannot make, before a machine is used for them.

    Raises:
        DatasetUnusable: a task's key does not have minifleet's form.
    """
    if spec.environment.provider != "minifleet":
        return
    for key, facts in table.items():
        used = facts["train"] + facts["eval"]
        # Older versions did not count them.
        num_foreign = used - facts.get("with_minifleet_key", used)
        if num_foreign:
            raise DatasetUnusable(
                f"{num_foreign} of {used} tasks of {key} in {reference} are not minifleet tasks:"
                " its keys are ENV/SPLIT/TEMPLATE/NUMBER, as `hillclimb fleet tasks` writes them."
                " Set environment.provider to the platform that has them, such as fleet"
            )
