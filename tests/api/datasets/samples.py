"""Files of tasks for tests."""

from __future__ import annotations

import json
from typing import Any

PLAYED = "environment: {provider: fleet, fleet: {base_url: 'http://127.0.0.1:9'}}\n"
"""Of a spec: where tasks with keys like these are played."""


def task(env: str, number: int, **fields: Any) -> dict[str, Any]:
    row = {
        "key": f"{env}-{number:03d}",
        "prompt": f"Do thing {number} in {env}.",
        "env_key": env,
        "env_variables": {"CURRENT_DATE": "2026-03-01", "LOGGED_IN_USER": "mira"},
        "task_modality": "tool_use",
    }
    return row | fields


def tasks(**counts: int) -> list[dict[str, Any]]:
    return [task(env, number) for env, count in counts.items() for number in range(count)]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
