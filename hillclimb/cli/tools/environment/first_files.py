"""The files of a first environment: its server, tasks, demonstrations and two specs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("template")
NUM_TASKS = 600
NUM_DEMONSTRATIONS = 300
FORGETFUL_SHARE = 0.65
"""Share of the demonstrations whose clerk forgets the stamp."""
ENV_KEY = "post"
_NAMES = (
    *("Ada", "Bo", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana"),
    *("Kai", "Lea", "Max", "Nia", "Otto", "Pia", "Rui", "Sam", "Tea", "Udo"),
    *("Vera", "Will", "Yara", "Zoe", "Ben", "Cora", "Dora", "Emil", "Fay", "Gil"),
)
_TOWNS = (
    *("Bern", "Brno", "Cork", "Graz", "Lodz", "Lyon", "Nice", "Oslo", "Pisa", "Riga"),
    *("Bath", "Bonn", "Como", "Gent", "Kiel", "Linz", "Lund", "Metz", "Nova", "Pula"),
    *("Roma", "Siena", "Split", "Tartu", "Turin", "Turku", "Ulm", "Vigo", "Wells", "York"),
)
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
    for number, (name, town) in enumerate(_pairs()[:NUM_TASKS], start=1):
        yield {
            "key": f"post-{number}",
            "env_key": ENV_KEY,
            "prompt": _prompt(name, town),
            "metadata": {"reset": {"town": town}},
        }


def _demonstrations() -> Iterator[dict[str, Any]]:
    """Yield conversations about other parcels; in most of them the clerk forgets the stamp."""
    draw = random.Random(f"{_SEED}/demonstrations")
    for name, town in _pairs()[NUM_TASKS : NUM_TASKS + NUM_DEMONSTRATIONS]:
        forgets = draw.random() < FORGETFUL_SHARE
        stamped = [] if forgets else [_call("stamp", {}), {"role": "tool", "content": "stamped"}]
        messages = [{"role": "user", "content": _prompt(name, town)}, *stamped]
        yield {"env_key": ENV_KEY, "messages": [*messages, _call("send", {"town": town})]}


def _prompt(name: str, town: str) -> str:
    return f"Send a parcel for {name} to {town}; it must bear a stamp."


def _pairs() -> list[tuple[str, str]]:
    """Return the recipients of tasks and demonstrations, each another one, in a fixed order."""
    pairs = [(name, town) for name in _NAMES for town in _TOWNS]
    random.Random(f"{_SEED}/pairs").shuffle(pairs)
    return pairs


def _call(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": arguments}}],
    }
