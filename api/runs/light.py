"""Kinds of runs that need no training slot: they take seconds and hold no model."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from api.tables import Run
from trainer.contract.spec import LIGHT_KINDS


def is_light(run: Run) -> bool:
    """Say whether the run goes beside those that hold slots."""
    return run.spec.get("kind") in LIGHT_KINDS


def light() -> ColumnElement[bool]:
    """The same as a condition on `Run`."""
    kind: ColumnElement[str] = Run.spec["kind"].astext
    return kind.in_(LIGHT_KINDS)
