"""Load of the fullest engine over the mean: groups by hash of their key, and by least work.

    python benchmarks/gpu/engine_routing.py [--out benchmarks/results/engine_routing.json]

A simulation: no engine and no GPU. A synchronous step waits for the fullest engine. Rollouts draw
lognormal lengths (sigma 0.6), take time in proportion, and at most `in_flight` run at once.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.workers.ray.engine_loads import EngineLoads

STEPS, SAMPLES, IN_FLIGHT, SIGMA = 1000, 4, 96, 0.6
CASES = ((24, 4), (64, 4), (24, 8), (64, 8), (64, 2))
"""Groups of a step, and engines."""


class ByHash:
    """The rule until November 2026: sha256 of the group's key, modulo the engines."""

    def __init__(self, num_engines: int) -> None:
        self._num = num_engines

    @contextmanager
    def place(self, group: str, _num_rollouts: int) -> Iterator[int]:
        digest = hashlib.sha256(group.encode()).digest()
        yield int.from_bytes(digest[:4], "big") % self._num


def step(rule: EngineLoads | ByHash, number: int, groups: int, engines: int) -> float:
    """Return max/mean of the tokens of an engine in one step."""
    rng = random.Random(number)
    waiting = [
        (f"{number}/train/default/task-{group}", rng.lognormvariate(0.0, SIGMA))
        for group in range(groups)
        for _ in range(SAMPLES)
    ]
    tokens = [0.0] * engines
    running: list[tuple[float, int]] = []
    opened = {}
    now = 0.0
    for index, (group, length) in enumerate(waiting):
        if len(running) == IN_FLIGHT:
            now, ended = heapq.heappop(running)
            opened.pop(ended).__exit__(None, None, None)
        opened[index] = rule.place(group, SAMPLES)
        tokens[opened[index].__enter__()] += length
        heapq.heappush(running, (now + length, index))
    for each in opened.values():
        each.__exit__(None, None, None)
    return max(tokens) / statistics.mean(tokens)


def main() -> None:
    """Print and write the figures of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    rows = []
    for groups, engines in CASES:
        row: dict[str, float] = {"groups": groups, "engines": engines}
        for name, rule in (("by_hash", ByHash(engines)), ("by_load", EngineLoads(engines))):
            found = sorted(step(rule, number, groups, engines) for number in range(STEPS))
            row[name] = round(statistics.mean(found), 3)
            row[f"{name}_p90"] = round(found[9 * STEPS // 10], 3)
        rows.append(row)
        print(row)
    if out is not None:
        about = {
            "steps": STEPS,
            "rollouts_per_group": SAMPLES,
            "in_flight": IN_FLIGHT,
            "sigma_of_lengths": SIGMA,
            "figure": "tokens of the fullest engine over the mean",
        }
        out.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
