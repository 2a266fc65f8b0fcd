"""The process that reads files of tasks is bounded in memory, time and number."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.datasets.errors import DatasetRejected, DatasetsBusy, DatasetTooLarge
from api.datasets.work import process
from api.datasets.work.process import JobLimits, run_job
from tests.api.datasets.samples import lines, tasks

JOB: dict[str, Any] = {"options": {}, "exclusions": [], "lineage": [], "now": "2026-03-01T00:00Z"}
ENOUGH = JobLimits(memory_mb=2048, deadline_s=60, max_unpacked_mb=2048)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(lines(tasks(booking=2000)))
    return tmp_path


def test_a_file_that_needs_too_much_memory_is_refused(folder: Path) -> None:
    with pytest.raises(DatasetTooLarge, match="more than 32 MB of memory"):
        run_job("build", folder, JOB, replace(ENOUGH, memory_mb=32))


def test_a_file_that_unpacks_to_too_much_is_refused_before_all_of_it_is_read(
    folder: Path,
) -> None:
    """50 MB of spaces in 50 kB, which no limit of an upload would hold up."""
    (folder / "source").write_bytes(gzip.compress(b"[" + b" " * 50_000_000))
    with pytest.raises(DatasetTooLarge, match="more than 20 MB when decompressed: split it"):
        run_job("build", folder, JOB, replace(ENOUGH, max_unpacked_mb=20))
    with pytest.raises(DatasetRejected, match="row 1: is not JSON"):
        run_job("build", folder, JOB, ENOUGH)


def test_a_file_that_takes_too_long_is_refused(folder: Path) -> None:
    with pytest.raises(DatasetTooLarge, match="takes over 0 s"):
        run_job("build", folder, JOB, replace(ENOUGH, deadline_s=0.01))


def test_a_third_file_is_sent_away_when_its_turn_does_not_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WAIT_S", 0.01)
    with process.turn(), process.turn(), pytest.raises(DatasetsBusy, match="try again"):
        run_job("build", folder, JOB, ENOUGH)


def test_a_process_that_breaks_says_so_in_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "source").unlink()
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="ended with 1"):
        run_job("build", folder, JOB, ENOUGH)
    assert "No such file" in caplog.text


def test_the_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "secret" not in str(process.environment())
