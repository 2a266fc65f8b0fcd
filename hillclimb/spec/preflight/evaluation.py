"""The spec of a run that evaluates a checkpoint of another run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_NAME = 120


def evaluation_of(
    spec: Mapping[str, Any], *, run_id: str, step: int, attempt: int
) -> dict[str, Any]:
    """Return the spec of an evaluation of a run's checkpoint, with the run's settings."""
    suffix = f" eval.{step}"
    source = {"run_id": run_id, "step": step, "attempt": attempt}
    return {
        **spec,
        "name": spec["name"][: MAX_NAME - len(suffix)] + suffix,
        "kind": "eval",
        "lineage": {"resumed_from": source},
    }
