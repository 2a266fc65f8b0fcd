"""The files of a first environment: its server, tasks, demonstrations and two specs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("template")
NUM_TASKS = 600
NUM_DEMONSTRATIONS = 240
ENV_KEY = "post"
_SERVICES = ("letter", "packet", "parcel")
_NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana")
_TOWNS = ("Bern", "Brno", "Cork", "Graz", "Lodz", "Lyon", "Nice", "Oslo", "Pisa", "Riga")
_SEED = 17
_COPIES = {
    "environment.txt": "environment.py",
    "warm_start.yaml": "warm_start.yaml",
    "train.yaml": "train.yaml",
    "README.md": "README.md",
}


def first_files() -> dict[str, str]:
    """Return the contents of the files by name; they are the same at every call."""
    files = {target: (TEMPLATE / source).read_text() for source, target in _COPIES.items()}
    return files | {
        "tasks.jsonl": _lines(_tasks()),
        "demonstrations.jsonl": _lines(_demonstrations()),
    }


def _lines(rows: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _tasks() -> Iterator[dict[str, Any]]:
    """Yield tasks whose parcels are numbered from 1, each with a weight from 100 to 899 g."""
    draw = random.Random(f"{_SEED}/tasks")
    for number in range(1, NUM_TASKS + 1):
        yield {
            "key": f"post-{number}",
            "env_key": ENV_KEY,
            "prompt": _prompt(number, draw),
            "metadata": {"reset": {"grams": draw.randrange(100, 900)}},
        }


def _demonstrations() -> Iterator[dict[str, Any]]:
    """Yield conversations about other parcels: the clerk weighs, and sends by any service."""
    draw = random.Random(f"{_SEED}/demonstrations")
    for number in range(NUM_TASKS + 1, NUM_TASKS + NUM_DEMONSTRATIONS + 1):
        prompt, grams, service = (
            _prompt(number, draw),
            draw.randrange(100, 900),
            draw.choice(_SERVICES),
        )
        yield {
            "env_key": ENV_KEY,
            "messages": [
                {"role": "user", "content": prompt},
                _call("weigh", {}),
                {"role": "tool", "content": f"{grams} g"},
                _call("send", {"service": service}),
            ],
        }


def _call(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": arguments}}],
    }


def _prompt(number: int, draw: random.Random) -> str:
    name, town = draw.choice(_NAMES), draw.choice(_TOWNS)
    return f"Parcel {number} for {name} in {town}: weigh it, then send it by the right service."
