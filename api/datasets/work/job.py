"""Runs one job on dataset files: `python -m api.datasets.work.job KIND FOLDER MEMORY_MB`.

The process reads `job.json` in the folder, writes `result.json` there, and uses neither the
database nor the blob store.
"""

from __future__ import annotations

import gzip
import json
import resource
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from api.datasets.work.exchange import JOB, OUT_OF_MEMORY, REJECTED, RESULT, TOO_LONG
from hillclimb.blobs.archive.gzip_file import GZIP_MAGIC
from hillclimb.datasets.diff import diff_versions
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.files import LINEAGE, SPLIT, TASKS
from hillclimb.datasets.format.lineage import Lineage
from hillclimb.datasets.format.rows import DatasetError, RowProblem, canonical_json
from hillclimb.datasets.format.stored import read_rows, read_splits, split_line
from hillclimb.datasets.format.table import count_by_env
from hillclimb.datasets.lint.findings import Finding
from hillclimb.datasets.lint.lint import LintOptions, lint
from hillclimb.datasets.lint.tool_tokens import ToolCount
from hillclimb.datasets.prepare import Prepared, PrepareOptions, prepare
from hillclimb.datasets.read.reading import Reading

CHUNK_BYTES = 1 << 18
MAX_PROBLEMS = 50
"""Mistakes that a response lists; all are counted."""
MAX_LISTED = 1000
"""Duplicates, copies, dropped keys and differences that a result lists; all are counted."""
MAX_REASONS = 100
"""Reasons for exclusions that a version counts separately; its split has all of them."""
GZIP_LEVEL = 3


class Rejected(Exception):
    """The tasks or the options are invalid: `process.run_job` raises it as DatasetRejected."""

    def __init__(self, message: str, problems: Iterable[RowProblem] = ()) -> None:
        super().__init__(message)
        self.problems = [
            {
                "pointer": f"/rows/{each.row}" + (f"/{each.field}" if each.field else ""),
                "code": "invalid_row",
                "message": each.sentence,
            }
            for each in problems
        ]


class _TooLong(Exception):
    """A compressed file exceeds the limit when decompressed."""


def build(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Build a version of the file `source`: write its three files and return its facts."""
    options = PrepareOptions.model_validate(job["options"])
    reading = Reading(drops_empty_prompts=options.filters.empty_prompts == "drop")
    lineage = Lineage.joined(
        Lineage.of(read_splits(folder / name) for name in line) for line in job["lineage"]
    )
    try:
        prepared = prepare(
            reading.rows(_chunks(folder / "source", job["max_unpacked_mb"])),
            options,
            now=datetime.fromisoformat(job["now"]),
            lineage=lineage,
            exclusions=[Exclusion.model_validate(each) for each in job["exclusions"]],
            measured=_measured(job),
        )
    except DatasetError as error:
        _refuse_problems(reading)
        raise Rejected(str(error)) from error
    _refuse_problems(reading)
    size_bytes = _write(folder / TASKS, map(canonical_json, prepared.rows))
    _write(folder / SPLIT, map(split_line, prepared.split))
    past = (read_splits(folder / name) for line in job["lineage"] for name in line)
    uses = Lineage.table((*past, prepared.split))
    _write(folder / LINEAGE, map(split_line, chain(uses, lineage.marks(prepared.split))))
    return _facts(prepared, reading) | {"size_bytes": size_bytes}


def relint(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Lint a stored version under other options."""
    split = {row.key: row for row in read_splits(folder / SPLIT)}
    rows = tuple(read_rows(folder / TASKS))
    table = count_by_env(rows, split)
    options = LintOptions.model_validate(job["options"])
    stored = [Finding.model_validate(finding) for finding in job["made"]]
    findings = lint(rows, split, table, options, stored, _measured(job))
    return {"findings": [finding.model_dump(mode="json") for finding in findings]}


def diff(folder: Path, _job: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the versions in the folders `before` and `after`."""
    sides: list[Any] = []
    for name in ("before", "after"):
        split = {row.key: row for row in read_splits(folder / name / SPLIT)}
        sides += [read_rows(folder / name / TASKS), split]
    diff_json = diff_versions(*sides).model_dump(mode="json")
    counts = {name: len(diff_json[name]) for name in ("added", "removed", "changed", "moved")}
    cut = {name: diff_json[name][:MAX_LISTED] for name in counts}
    return (
        diff_json | cut | {"counts": counts, "is_cut": any(n > MAX_LISTED for n in counts.values())}
    )


def _facts(prepared: Prepared, reading: Reading) -> dict[str, Any]:
    places = dict.fromkeys(("train", "eval", "excluded"), 0)
    reasons: Counter[str] = Counter()
    for row in prepared.split:
        places[row.split] += 1
        if row.reason is not None:
            reasons[row.reason] += 1
    return {
        "digest": prepared.digest,
        "content_hash": prepared.content_hash,
        "split_hash": prepared.split_hash,
        "num_tasks": len(prepared.rows),
        **{f"num_{name}": count for name, count in places.items()},
        "num_read": prepared.num_read,
        "envs": {
            each.env_key: each.model_dump(mode="json", exclude={"env_key"})
            for each in prepared.table
        },
        "dropped": prepared.dropped,
        "empty_prompts": list(prepared.empty_prompts[:MAX_LISTED]),
        "excluded": _first(reasons),
        "num_duplicates": len(prepared.duplicates),
        "duplicates": [each.model_dump(mode="json") for each in prepared.duplicates[:MAX_LISTED]],
        "num_copies": len(prepared.copies),
        "copies": [each.model_dump(mode="json") for each in prepared.copies[:MAX_LISTED]],
        "ignored_fields": dict(reading.ignored_fields.most_common(50)),
        "findings": [each.model_dump(mode="json") for each in prepared.findings],
    }


def _first(reasons: Counter[str]) -> dict[str, int]:
    """Return the most frequent reasons, sorted by name, and the others as one."""
    frequent = dict(reasons.most_common(MAX_REASONS))
    num_other = reasons.total() - sum(frequent.values())
    return dict(sorted(frequent.items())) | ({"other reasons": num_other} if num_other else {})


def _measured(job: Mapping[str, Any]) -> dict[str, ToolCount]:
    return {key: ToolCount.model_validate(count) for key, count in job.get("measured", {}).items()}


def _refuse_problems(reading: Reading) -> None:
    if not reading.num_problems:
        return
    problems = reading.problems[:MAX_PROBLEMS]
    more = reading.num_problems - len(problems)
    suffix = f" (and {more} more)" if more else ""
    raise Rejected("; ".join(problem.sentence for problem in problems[:3]) + suffix, problems)


def _chunks(path: Path, max_mb: int) -> Iterator[bytes]:
    """Yield a file in chunks, decompressed if needed; raises _TooLong beyond `max_mb`."""
    remaining = max_mb * 1_000_000
    with path.open("rb") as plain:
        is_gzip = plain.read(2) == GZIP_MAGIC
        plain.seek(0)
        with closing(gzip.open(plain, "rb") if is_gzip else plain) as file:
            try:
                while chunk := file.read(CHUNK_BYTES):
                    remaining -= len(chunk)
                    if remaining < 0:
                        raise _TooLong
                    yield chunk
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise Rejected(
                    f"the compressed file is damaged or truncated ({error}): send it again"
                ) from error


def _write(path: Path, lines: Iterable[bytes]) -> int:
    """Write lines to a file, compressed reproducibly; return their size in bytes."""
    size = 0
    with path.open("wb") as raw, _compressor(raw) as packed:
        for line in lines:
            size += packed.write(line + b"\n")
    return size


def _compressor(raw: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile("", "wb", compresslevel=GZIP_LEVEL, fileobj=raw, mtime=0)


KINDS: Mapping[str, Callable[[Path, Mapping[str, Any]], dict[str, Any]]] = {
    "build": build,
    "lint": relint,
    "diff": diff,
}


def main(kind: str, folder: Path, memory_mb: int) -> int:
    """Run the job and return the exit code."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    try:
        result = KINDS[kind](folder, json.loads((folder / JOB).read_text()))
    except MemoryError:
        return OUT_OF_MEMORY
    except _TooLong:
        return TOO_LONG
    except Rejected as refusal:
        rejection = {"message": str(refusal), "problems": refusal.problems}
        (folder / RESULT).write_text(json.dumps(rejection))
        return REJECTED
    (folder / RESULT).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
