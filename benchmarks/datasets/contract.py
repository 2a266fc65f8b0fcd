"""Seconds and memory to read, filter, split, lint and diff 20,557 tasks with the contract alone.

    python benchmarks/datasets/contract.py [--tasks 20557] [--out FIGURES.json]

Two versions are made: the second has a hundred more tasks and edits one in a hundred, and its split
keeps to the first's. Each part is timed once, in the order in which a registration does them, by
the clock and by the processor's time (which other processes on the machine do not lengthen); the
peak is the process's own (`ru_maxrss`), which includes the interpreter. Storing and serving come on
top: they are the API's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import synthetic

from hillclimb.datasets.diff import diff_versions
from hillclimb.datasets.format.lineage import Lineage
from hillclimb.datasets.format.rows import canonical_json, content_hash
from hillclimb.datasets.prepare import Prepared, PrepareOptions, prepare
from hillclimb.datasets.read.reading import Reading

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CHUNK_BYTES = 2**20


def measure(directory: Path, num_tasks: int) -> dict[str, Any]:
    """Return seconds by part, the peak in MiB, and what was made."""
    figures: dict[str, Any] = {}
    first, second = directory / "first.json", directory / "second.json"
    with clock(figures, "read, filter, split, table, lint (first version)"):
        made = register(first, None)
    stored = directory / "first.jsonl"
    with clock(figures, "canonical rows to a file"), stored.open("wb") as file:
        file.writelines(canonical_json(row) + b"\n" for row in made.rows)
    old_split, figures["digest"] = made.split, made.digest
    figures["tasks"], figures["findings"] = len(made.rows), len(made.findings)
    figures["peak MiB after one version"] = peak_mib()
    del made
    with clock(figures, "the same for a second version with a parent"):
        grown = register(second, Lineage.of([old_split]))
    with clock(figures, "diff against the stored rows"):
        told = diff_versions(
            Reading().rows(chunks(stored)),
            {row.key: row for row in old_split},
            grown.rows,
            {row.key: row for row in grown.split},
        )
    figures["added"], figures["changed"] = len(told.added), len(told.changed)
    assert content_hash(grown.rows) == grown.content_hash
    return figures


def register(path: Path, lineage: Lineage | None) -> Prepared:
    reading = Reading()
    made = prepare(reading.rows(chunks(path)), PrepareOptions(), now=NOW, lineage=lineage)
    assert reading.num_problems == 0, reading.problems
    return made


def chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


@contextmanager
def clock(figures: dict[str, Any], name: str) -> Iterator[None]:
    started, busy = time.perf_counter(), time.process_time()
    yield
    figures[f"s: {name}"] = round(time.perf_counter() - started, 2)
    figures[f"CPU s: {name}"] = round(time.process_time() - busy, 2)


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Write the two files in another process, so that their making is not measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=synthetic.NUM_TASKS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    script = Path(__file__).with_name("synthetic.py")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, extra, more in (
            ("first.json", 0, []),
            ("second.json", 100, ["--edit-every=100"]),
        ):
            command = [sys.executable, script, directory / file]
            subprocess.run([*command, f"--tasks={given.tasks + extra}", *more], check=True)
        figures = measure(directory, given.tasks)
        figures["file MB"] = round((directory / "first.json").stat().st_size / 1e6, 1)
    for unit in ("s", "CPU s"):
        parts = [value for name, value in figures.items() if name.startswith(f"{unit}: ")]
        figures[f"{unit}: all parts"] = round(sum(parts), 2)
    figures["peak MiB"] = peak_mib()
    figures["load average"] = round(os.getloadavg()[0], 1)
    figures["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    print(json.dumps(figures, indent=2))
    if given.out is not None:
        given.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
