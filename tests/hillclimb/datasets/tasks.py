"""Tasks of made-up datasets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hillclimb.datasets.format.rows import TaskRow

VARIABLES = {"CURRENT_DATE": "2026-03-01", "LOGGED_IN_USER": "mira"}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def task(key: str, env_key: str = "booking", **fields: Any) -> TaskRow:
    given = {"prompt": f"Do what {key} says.", "env_variables": VARIABLES} | fields
    return TaskRow(key=key, env_key=env_key, **given)


def tasks(sizes: Mapping[str, int], *, start: int = 0, **fields: Any) -> list[TaskRow]:
    """So many tasks of each environment; keys go on from `start`. No prompt resembles another."""
    return [
        task(
            f"task_{env_key}_{n}",
            env_key,
            **{"prompt": f"{_words(env_key, n)} in {env_key}."} | fields,
        )
        for env_key, size in sizes.items()
        for n in range(start, start + size)
    ]


def _words(env_key: str, n: int) -> str:
    rng = random.Random(f"{env_key}/{n}")
    return " ".join("".join(rng.choices(_LETTERS, k=6)) for _ in range(3)).capitalize()
