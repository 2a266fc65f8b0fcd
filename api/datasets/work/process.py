"""Runs heavy work on datasets in separate processes, bounded in memory and time.

Reading a file of tasks takes seconds of pure Python: in a thread it would block every event stream.
The process gets only a folder: `job.json` and the input files go in, output files and `result.json`
come out. Its environment has none of the service's secrets.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.datasets.errors import DatasetRejected, DatasetsBusy, DatasetTooLarge
from api.datasets.work.exchange import JOB, OUT_OF_MEMORY, REJECTED, RESULT, TOO_LONG
from hillclimb.protocol.spec_problems import SpecProblem

LOG = "log"
AT_ONCE = 2
WAIT_S = 30.0
"""A request waits this long for a free process before it is rejected."""
PASSED_ON = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HILLCLIMB_STATE_DIR", "SYSTEMROOT", "TMPDIR")
"""The embedded stack recognizes its own processes by the state directory."""
ROOT = Path(__file__).resolve().parents[3]

log = logging.getLogger(__name__)
_turns = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of one process."""

    memory_mb: int
    """Address space."""
    deadline_s: float
    max_unpacked_mb: int
    """Decompressed size of a file of tasks."""


def run_job(kind: str, folder: Path, job: Mapping[str, Any], limits: JobLimits) -> dict[str, Any]:
    """Run a job of this kind on the files in `folder` and return its result.

    Raises:
        DatasetRejected: the tasks or the options are invalid.
        DatasetTooLarge: the job exceeded its memory or time.
        DatasetsBusy: no process was free within `WAIT_S`.
    """
    arguments = {**job, "max_unpacked_mb": limits.max_unpacked_mb}
    (folder / JOB).write_text(json.dumps(arguments, default=str))
    command = [
        sys.executable,
        "-m",
        "api.datasets.work.job",
        kind,
        str(folder),
        str(limits.memory_mb),
    ]
    with turn(), (folder / LOG).open("wb") as output:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=limits.deadline_s,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise DatasetTooLarge(
                f"Reading the tasks takes over {limits.deadline_s:.0f} s: split the file into"
                " two datasets, or raise HILLCLIMB_DATASET_DEADLINE_S."
            ) from error
    return _result(code, folder, limits)


def _result(code: int, folder: Path, limits: JobLimits) -> dict[str, Any]:
    if code == OUT_OF_MEMORY:
        raise DatasetTooLarge(
            f"The tasks take more than {limits.memory_mb} MB of memory to read: split the file into"
            " two datasets, or raise HILLCLIMB_DATASET_MEMORY_MB."
        )
    if code == TOO_LONG:
        raise DatasetTooLarge(
            f"The file has more than {limits.max_unpacked_mb} MB when decompressed: split it into"
            " two datasets, or raise HILLCLIMB_DATASET_UNPACKED_MB."
        )
    if code not in (0, REJECTED):
        log.error("datasets: process ended with %d: %s", code, (folder / LOG).read_text()[-4000:])
        raise RuntimeError(f"the process that reads datasets ended with {code}")
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    if code == REJECTED:
        problems = [SpecProblem(**problem) for problem in result["problems"]]
        raise DatasetRejected(result["message"], problems)
    return result


@contextmanager
def turn() -> Iterator[None]:
    """Reserve a process slot for the block; raises DatasetsBusy when none becomes free."""
    if not _turns.acquire(timeout=WAIT_S):
        raise DatasetsBusy("Other files of tasks are being read: try again in a minute.")
    try:
        yield
    finally:
        _turns.release()


def environment() -> dict[str, str]:
    """Return the process's environment variables."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
