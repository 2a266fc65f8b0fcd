"""Histories of W&B runs as rows of a step and its metrics, packed into the file that is uploaded.

Files and the public API are read on the user's machine, with the user's own key.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hillclimb.client.errors import ImportSourceError

GLOBAL_STEP, ROW = "trainer/global_step", "_step"
"""Metric with the training step, which counts if a row has it; else W&B's own number of the row."""
PRIVATE = ("_", "system/", "system.")
"""Beginnings of the names of W&B's own figures, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedHistory:
    """The file of a history, which is deleted at the end of `packed`."""

    path: Path
    num_rows: int


@contextmanager
def packed(rows: Iterable[Mapping[str, object]]) -> Iterator[PackedHistory]:
    """Yield the file of JSON lines of a history's rows; rows without a number are left out.

    Raises:
        ImportSourceError: no row has a number.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-import-") as folder:
        path, number = Path(folder, "history.jsonl.gz"), 0
        with gzip.GzipFile(path, "wb", mtime=0) as file:
            for row in rows:
                step, metrics = _step(row), _metrics(row)
                if step is not None and metrics:
                    line = json.dumps({"step": step, "metrics": metrics}, separators=(",", ":"))
                    file.write(line.encode() + b"\n")
                    number += 1
        if not number:
            raise ImportSourceError("the history has no row with a step and a number")
        yield PackedHistory(path=path, num_rows=number)


def _step(row: Mapping[str, object]) -> int | None:
    for name in (GLOBAL_STEP, ROW):
        value = row.get(name)
        if _is_number(value) and float(value) == int(value):  # type: ignore[arg-type, call-overload]
            return int(value)  # type: ignore[call-overload, no-any-return]
    return None


def _metrics(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in row.items()
        if _is_number(value) and not name.startswith(PRIVATE)
    }


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)
