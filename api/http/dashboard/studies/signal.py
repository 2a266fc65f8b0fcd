"""Contents of the signal heat map: steps by environments, coloured by groups with signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_COLUMNS = 60
LEVELS = 6
"""Shades of a cell, from no signal to all groups with signal."""


def signal_contents(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report with its steps in at most `MAX_COLUMNS` columns per environment."""
    steps = [p["step"] for env in report["environments"].values() for p in env["steps"]]
    if not steps:
        return {"rows": [], "columns": [], "all": report["all"]}
    first, last = min(steps), max(steps)
    width = -(-(last - first + 1) // MAX_COLUMNS)
    starts = list(range(first, last + 1, width))
    return {
        "all": report["all"],
        "columns": [_span(start, min(start + width - 1, last)) for start in starts],
        "rows": [
            {
                "env_key": key,
                "report": env,
                "cells": [_cell(env["steps"], start, start + width - 1) for start in starts],
            }
            for key, env in report["environments"].items()
        ],
    }


def _cell(points: Sequence[Mapping[str, Any]], start: int, end: int) -> dict[str, Any]:
    inside = [p for p in points if start <= p["step"] <= end and p["signal_ratio"] is not None]
    groups = sum(p["num_groups"] for p in inside)
    if not groups:
        return {"level": None, "text": f"{_span(start, end)}: no groups"}
    ratio = sum(p["signal_ratio"] * p["num_groups"] for p in inside) / groups
    return {
        "level": min(LEVELS - 1, int(ratio * LEVELS)),
        "text": f"{_span(start, end)}: {ratio:.0%} of {groups} groups",
    }


def _span(start: int, end: int) -> str:
    return f"step {start}" if start == end else f"steps {start} to {end}"
