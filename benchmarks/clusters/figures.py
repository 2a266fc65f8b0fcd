"""Rows of the page of the clusters' benchmarks, from what their scripts wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = tuple[str, str]
"""Question, figure."""


def cluster_figures() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| question | figure |"
    yield "|---|---|"
    for script, (name, rows) in _ROWS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            yield f"| `{script}` | not measured yet |"
            continue
        for question, figure in rows(json.loads(path.read_text())):
            yield f"| `{script}`: {question} | {figure} |"


def _simulation(found: dict[str, Any]) -> Iterator[Row]:
    yield "runs, virtual hours", f"{found['runs']}, {found['virtual_hours']:g} h"
    yield (
        "most clusters and launches of a run at once",
        f"**1**, at each of {found['checks']} checks; of all runs {found['most_clusters_at_once']}",
    )
    left = found["clusters_left_in_the_database"] + found["clusters_left_in_the_clouds"]
    yield "clusters leaked", f"**{left}** of {found['clusters_made']}"
    ended = found["strays_put_there"] - found["strays_left"]
    yield (
        "clusters without an owner, ended",
        f"{ended} of {found['strays_put_there']};"
        f" {found['foreign_left_alone']} of somebody else's left alone",
    )
    for end, number in found["ends"].items():
        yield f"runs that ended as {end}", str(number)
    for event, number in found["events"].items():
        yield f"happened: {event}", str(number)
    yield (
        "seconds it took",
        f"{found['seconds']:.0f}, {found['processor_seconds']:.0f} of a processor without the"
        f" database's, {_machine(found)} when it ended",
    )


def _lag(found: dict[str, Any]) -> Iterator[Row]:
    for what, every in (("clusters", "15 s at work, 3 s coming and going"), ("runs", "5 s")):
        spread = found["lag"][what]
        yield (
            f"lag of {what}, due every {every}",
            f"**{spread['p99_s']:.2f} s** 99th percentile, {spread['p50_s']:.2f} s median,"
            f" {spread['max_s']:.2f} s most, {spread['looks']} looks",
        )
        for how in ("put off together", "in a task"):
            part = spread[how]
            figure = f"{part['looks']} looks"
            if "p99_s" in part:
                figure += f", {part['p99_s']:.2f} s 99th percentile"
            yield f"of those of {what} {how}", figure
        overdue = found["most_overdue_seen_s"][what]
        yield f"most overdue of all {what}, seen each second", f"{overdue:.2f} s"
    shares = ", ".join(f"{name} {share:.2f}" for name, share in found["processor_share"].items())
    yield "processors that the services used", shares
    yield (
        "meanwhile",
        f"{found['clusters']} clusters at work, {found['runs_submitted']} runs submitted,"
        f" {found['runs_ended']} ended, {found['clusters_taken_back']} clusters taken back"
        f" in {found['seconds']:.0f} s",
    )
    yield "machine", f"{_machine(found)} when it began"


def _machine(found: dict[str, Any]) -> str:
    return f"{found['cores']} cores, load average {found['load_average'][0]:g}"


_ROWS: dict[str, tuple[str, Callable[[dict[str, Any]], Iterator[Row]]]] = {
    "lag.py": ("clusters_lag", _lag),
    "simulate.py": ("clusters_simulation", _simulation),
}
