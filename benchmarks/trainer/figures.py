"""Rows of the page of the trainer's benchmarks, from what their scripts wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = tuple[str, int, str]
"""Question, runs, figure."""
DECIDES = 100
"""Rollouts below which a change of pass@1 says nothing: `speed --eval-tasks 1` has 15."""


def trainer_figures() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| question | runs | figure |"
    yield "|---|---|---|"
    for name, rows in _ROWS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            yield f"| `{name}.py` | | not measured yet |"
            continue
        for question, runs, figure in rows(json.loads(path.read_text())):
            yield f"| `{name}.py`: {question} | {runs} | {figure} |"


def _versus_trl(found: dict[str, Any]) -> Iterator[Row]:
    target = f"{found['target']:g} % held-out pass@1"
    for config, seconds in found["tuning"].items():
        tuned_to = f"{found['tuning_target']:g} % (tuning)"
        yield f"seconds to {tuned_to}, TRL `{config}`", 1, _seconds(seconds)
    for name, seconds_by_run in found["seconds"].items():
        title = f"TRL `{found['config']}`" if name == "TRL" else f"ours {name}"
        each = ", ".join(map(_seconds, seconds_by_run))
        yield f"seconds to {target}, {title}", len(seconds_by_run), each
    for name, ratio in found["ratios"].items():
        figure = "not every run reached it" if ratio is None else f"**{ratio:.1f}**"
        yield f"TRL's seconds over ours {name}", len(found["seconds"]["TRL"]), figure


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.0f}"


def _agent_loop(found: dict[str, Any]) -> Iterator[Row]:
    rounds = found["rounds"]
    for name, title in (
        ("same_batches", "vLLM alone on the same batches, turn by turn"),
        ("one_batch", "vLLM alone on all requests in one batch"),
    ):
        ratio = median(each["loop"] for each in rounds) / median(each[name] for each in rounds)
        single = [each["loop"] / each[name] for each in rounds]
        spread = f"**{ratio:.2f}** (single rounds {min(single):.2f} to {max(single):.2f})"
        yield f"tokens/s of the agent loop over {title}", len(rounds), spread


def _async_vs_sync(found: dict[str, Any]) -> Iterator[Row]:
    for share in found.values():
        runs, steps = len(share["runs"]["synchronous"]), share["settings"]["steps"]
        for name, ratio in share.get("ratio", {}).items():
            single = _pairs(share["runs"], name)
            spread = f"**{ratio:.2f}** (single pairs {min(single):.2f} to {max(single):.2f})"
            yield f"trajectories/s, {name} over synchronous", runs, spread
        for name, changes in share["paired"].items():
            for decoding, change in changes.items():
                if change["n"] < DECIDES:
                    continue
                yield (
                    f"pass@1 after {steps} steps, {name} minus synchronous, {decoding}",
                    runs,
                    f"{change['delta']:+.1f} points, {_chance(change['p_value'])},"
                    f" n = {change['n']}",
                )


def _pairs(runs: dict[str, list[dict[str, float]]], name: str) -> list[float]:
    rates = [[each["trajectories_per_s"] for each in runs[side]] for side in (name, "synchronous")]
    return [ahead / behind for ahead, behind in zip(*rates, strict=True)]


def _chance(value: float | None) -> str:
    if value is None:
        return "p unknown"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


_ROWS: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "versus_trl": _versus_trl,
    "agent_loop": _agent_loop,
    "async_vs_sync": _async_vs_sync,
}
