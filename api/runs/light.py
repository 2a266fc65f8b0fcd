"""Kinds of runs; those that need no training slot take seconds and hold no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, func

from api.tables import Run
from trainer.contract.spec import LIGHT_KINDS

LIGHT_AT_ONCE = 2
"""Attempts a runner gets beside those that fill its slots."""


def kind_of(run: Run) -> str:
    """Return the kind of the run."""
    return kind_in(run.spec)


def kind_in(spec: Mapping[str, Any]) -> str:
    """Return the kind that a stored spec names; those from before there were kinds name none."""
    kind: str = spec.get("kind", "train")
    return kind


def kind() -> ColumnElement[str]:
    """The same as a column of `Run`."""
    named: ColumnElement[str] = func.coalesce(Run.spec["kind"].astext, "train")
    return named


def light() -> ColumnElement[bool]:
    """A condition on `Run`: it goes beside the runs that hold slots."""
    return kind().in_(LIGHT_KINDS)
