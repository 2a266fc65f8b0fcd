"""Writes a file of made-up tasks with the size and shape of Fleet's v3: 20,557 tasks, 107 MB.

    python benchmarks/datasets/synthetic.py tasks.json [--tasks 20557] [--jsonl] [--edit-every 100]

Environments have the proportions of Fleet's published v0.3 table (14 environments, google-maps
46 %, dropbox three tasks of ten thousand). Prompts are filled-in templates of one to four
sentences; verifiers are 2 to 6 kB of Python source; one task in twenty has no env_variables, one in
a hundred repeats an earlier row. The same seed writes the same file, and more tasks go on from it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PUBLISHED = {
    "amazon": 18,
    "booking": 1336,
    "carlisle": 38,
    "dropbox": 3,
    "fira": 66,
    "fostgres": 949,
    "github": 2081,
    "google-maps": 4727,
    "hubspot": 19,
    "outlook": 39,
    "reddit": 455,
    "ticketmaster": 257,
    "wallst": 69,
    "zillow": 118,
}
"""Tasks of v0.3 by environment."""
NUM_TASKS = 20_557

_PLACES = [
    "Brno",
    "Lisbon",
    "Osaka",
    "Quito",
    "Tartu",
    "Galway",
    "Lucca",
    "Bergen",
    "Leuven",
    "Cusco",
    "Nara",
    "Ghent",
]
_PEOPLE = [
    "Mira",
    "Tomas",
    "Aiko",
    "Rafael",
    "Ines",
    "Jonas",
    "Priya",
    "Chen",
    "Olga",
    "Samir",
    "Nadia",
    "Felix",
]
_THINGS = [
    "hotel",
    "flight",
    "table",
    "issue",
    "message",
    "ticket",
    "listing",
    "deal",
    "note",
    "branch",
    "review",
    "route",
]
_TEMPLATES = (
    "Book the cheapest {thing} in {place} for {n} nights from {month} {day} and tell me its price.",
    "{person} asked for a {thing} near {place}. Find {n} of them, compare what they cost, and"
    " reserve the one with the best rating under ${price}.",
    "Move every {thing} of {person} that is older than {n} days to the folder {place}-{price}.",
    "How many {thing}s did {person} open in {place} since {month} {day}? Answer with a number.",
    "Create a {thing} titled '{place} {price}', assign it to {person}, and close the {n} oldest"
    " ones. Then write {person} a message that says what you did and why.",
    "Change the {thing} of {person} to {place} on {month} {day}, {year}; keep the budget of"
    " ${price} and cancel the one from {person2}.",
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
]


def tasks(num_tasks: int, seed: int, edit_every: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield tasks in a mixed order; a larger number goes on from the same ones."""
    rng = random.Random(seed)
    written: list[dict[str, Any]] = []
    for index in range(num_tasks):
        if index and rng.random() < 0.01:
            yield rng.choice(written)
            continue
        (env,) = rng.choices(list(PUBLISHED), list(PUBLISHED.values()))
        task = _task(rng, env, index)
        written = [*written[-50:], task]
        yield task if edit_every is None or index % edit_every else task | {"difficulty": 3}


def _task(rng: random.Random, env: str, index: int) -> dict[str, Any]:
    task: dict[str, Any] = {
        "key": f"task_{rng.getrandbits(60):012x}_{1768000000000 + index}_{rng.getrandbits(40):09x}",
        "prompt": " ".join(_sentence(rng) for _ in range(rng.randint(1, 4))),
        "env_key": env,
        "env_version": f"v0.{rng.randint(0, 3)}.{rng.randint(0, 30)}",
        "data_key": "seed",
        "data_version": f"v0.0.{rng.randint(1, 9)}",
        "task_modality": "tool_use",
        "difficulty": rng.choice((1, 2, 3)),
        "verifier_code": _verifier(rng),
        "team_id": "0f0f0f0f-0000-4000-8000-000000000000",
        "created_at": "2026-01-10T09:00:00Z",
        "metadata": {"template": f"{env}_{rng.randint(1, 40)}", "steps": rng.randint(2, 30)},
    }
    if rng.random() < 0.95:
        task["env_variables"] = {
            "CURRENT_DATE": f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}",
            "LOGGED_IN_USER": f"{rng.choice(_PEOPLE).lower()}@post.example",
            "LOGGED_IN_NAME": rng.choice(_PEOPLE),
        }
    return task


def _sentence(rng: random.Random) -> str:
    return rng.choice(_TEMPLATES).format(
        thing=rng.choice(_THINGS),
        place=rng.choice(_PLACES),
        person=rng.choice(_PEOPLE),
        person2=rng.choice(_PEOPLE),
        month=rng.choice(_MONTHS),
        day=rng.randint(1, 28),
        year=2026,
        n=rng.randint(1, 30),
        price=rng.randint(20, 9000),
    )


def _verifier(rng: random.Random) -> str:
    lines = ["def verify(env, final_answer=None):", "    current = env.db('current')"]
    size = rng.randint(2_000, 6_000)
    while sum(map(len, lines)) < size:
        name, number = rng.choice(_THINGS), rng.randint(1, 99999)
        lines.append(
            f'    {name}_{number} = current.table("{name}s").eq("id", {number}).first()\n'
            f'    if {name}_{number} is None or {name}_{number}["status"] != "done":\n'
            f'        print("ERROR_ACCUMULATOR: {name} {number} was not changed")\n'
            f"        return TASK_FAILED_SCORE\n"
        )
    return "\n".join([*lines, "    return TASK_SUCCESSFUL_SCORE\n"])


def write(path: Path, made: Iterator[dict[str, Any]], *, as_lines: bool = False) -> None:
    """Write the file: an object with a list, as Fleet's set-up scripts read it, or lines."""
    with path.open("w", encoding="utf-8") as file:
        if not as_lines:
            file.write('{"version": "synthetic", "tasks": [\n')
        for index, task in enumerate(made):
            separator = "" if index == 0 else "\n" if as_lines else ",\n"
            file.write(separator + json.dumps(task))
        if not as_lines:
            file.write("\n]}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--tasks", type=int, default=NUM_TASKS)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--jsonl", action="store_true")
    parser.add_argument("--edit-every", type=int, help="change the difficulty of every n-th task")
    given = parser.parse_args()
    made = tasks(given.tasks, given.seed, given.edit_every)
    write(given.path, made, as_lines=given.jsonl)
