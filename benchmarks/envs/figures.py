"""Rows of the page of the environments' benchmarks, from what their scripts wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = tuple[str, str]
"""Question, figure."""


def environment_figures() -> Iterator[str]:
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


def _overhead(found: dict[str, Any]) -> Iterator[Row]:
    titles = {
        "in_this_process": "in this process",
        "through_the_provider": "through the provider, one session for all calls",
        "through_a_session_of_its_own": "through an MCP session of its own",
    }
    for name, title in titles.items():
        spread = found["ms_per_call"][name]
        yield (
            f"ms per tool call, {title}",
            f"**{spread['median']:.3g}** median, {spread['p90']:.3g} 90th percentile",
        )
    processor = found["processor_ms_per_call"]["through_the_provider"]
    yield "ms of processor time per call in the trainer's process", f"**{processor:.2f}**"
    after = found["requests_per_call_after_the_first"]
    own = found["requests_per_call_with_a_session_of_its_own"]
    yield "HTTP requests per call after the first", f"**{after:g}**; {own:g} with own sessions"
    yield "machine", _machine(found)


def _collection(found: dict[str, Any]) -> Iterator[Row]:
    for name in ("without_faults", "under_faults"):
        run, title = found[name], name.replace("_", " ")
        outcomes = ", ".join(f"{count} {status}" for status, count in run["outcomes"].items())
        yield f"outcomes of {found['rollouts']} rollouts, {title}", outcomes
        yield (
            f"pass@1, {title}",
            f"{run['pass_at_1']:.3f}, coverage {run['coverage']:.3f},"
            f" bounds {run['bound_if_failed']:.3f} to {run['bound_if_passed']:.3f}",
        )
        yield f"grades other than earned, {title}", str(run["wrong_grades"])
        left = run["server"]["instances"]["running"]
        yield f"instances left, {title}", f"{left} of {run['server']['instances']['created']}"
        yield f"rollouts/s, {title}", f"{run['rollouts_per_s']:g} ({run['seconds']:g} s)"
    yield "throughput under faults over without", f"**{found['throughput_ratio']:.2f}**"
    yield "machine", _machine(found)


def _machine(found: dict[str, Any]) -> str:
    load = found["load_average"][0]
    return f"{found['cores']} cores, load average {load:g} when it began"


_ROWS: dict[str, tuple[str, Callable[[dict[str, Any]], Iterator[Row]]]] = {
    "overhead.py": ("fleet_overhead", _overhead),
    "collection.py": ("fleet_collection", _collection),
}
