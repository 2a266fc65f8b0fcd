"""Whether the environments of a run can have the tasks of a dataset, as far as keys tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.datasets.errors import DatasetUnusable
from trainer.contract.data import DatasetRef
from trainer.contract.spec import RunSpec


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
