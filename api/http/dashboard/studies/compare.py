"""Contents of the compare page: two evaluations, task by task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from api.http.dashboard.run.record import dotted
from api.http.dashboard.run.rollouts import rollout_address
from api.http.dashboard.run.run_list import VERDICT_TONES

__all__ = ["VERDICT_TONES", "compare_contents"]

MAX_ROWS = 50
"""Tasks that the page lists per direction; the API has up to 200."""


def compare_contents(facts: Mapping[str, Any], decoding: str) -> dict[str, Any]:
    """Return a comparison as plain values, under one of its decodings."""
    names = list(facts["decodings"])
    chosen = decoding if decoding in names else names[0]
    table = facts["decodings"][chosen]
    a, b = facts["a"], facts["b"]
    return {
        "sides": [a, b],
        "decodings": names,
        "decoding": chosen,
        "rule": facts["rule"],
        "rows": [
            *(_row(name, each) for name, each in sorted(table["environments"].items())),
            _row("all", table["all"]),
        ],
        "differences": [
            {
                "key": dotted(each["pointer"]),
                "a": json.dumps(each["a"], ensure_ascii=False),
                "b": json.dumps(each["b"], ensure_ascii=False),
            }
            for each in facts["config_diff"]
        ],
        "lost": [_flip(each, a["run_id"], b["run_id"]) for each in table["lost"][:MAX_ROWS]],
        "gained": [_flip(each, a["run_id"], b["run_id"]) for each in table["gained"][:MAX_ROWS]],
        "num_lost": len(table["lost"]),
        "num_gained": len(table["gained"]),
        "alone": (table["num_tasks_of_a_alone"], table["num_tasks_of_b_alone"]),
    }


def _row(name: str, each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "before": each["before"],
        "after": each["after"],
        "interval": each["after_interval"],
        "delta": each["delta"],
        "n": each["n"],
        "gained": each["num_gained"],
        "lost": each["num_lost"],
        "p": each["p_adjusted"] if each["p_adjusted"] is not None else each["p_value"],
        "verdict": each["verdict"],
        "tone": VERDICT_TONES.get(each["verdict"], ""),
    }


def _flip(flip: Mapping[str, Any], first: str, second: str) -> dict[str, Any]:
    """Return a flip with the address of its two rollouts side by side."""
    a, b = flip["a_rollout"], flip["b_rollout"]
    address = None
    if a is not None and b is not None:
        query = urlencode({"beside": b, "beside_run": second})
        address = f"{rollout_address(first, a)}?{query}"
    return {
        "env_key": flip["env_key"],
        "task_key": flip["task_key"],
        "change": flip["change"],
        "address": address,
        "a": None if a is None else rollout_address(first, a),
        "b": None if b is None else rollout_address(second, b),
    }
