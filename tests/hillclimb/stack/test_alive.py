"""The file that a process touches while it works."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hillclimb.stack.system import alive


def test_a_process_that_works_is_healthy_until_it_is_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "alive"
    monkeypatch.setenv(alive.VARIABLE, str(file))
    assert alive.main() == 1
    alive.touch()
    assert alive.main() == 0
    long_ago = time.time() - alive.SILENT_S - 1
    os.utime(file, (long_ago, long_ago))
    assert alive.main() == 1


def test_a_file_that_cannot_be_touched_ends_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(alive.VARIABLE, str(tmp_path / "gone" / "alive"))
    alive.touch()
    assert "the health check will fail" in caplog.text
    assert alive.main() == 1
