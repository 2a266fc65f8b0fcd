"""Whose folders are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainer.leftovers import own_path


def test_folders_of_processes_that_are_gone_are_deleted_and_no_others(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from trainer.leftovers import own_path;"
    program += "own_path(Path(sys.argv[1]), 'x-').mkdir()"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / f"x-{os.getppid()}-alive").mkdir()
    (tmp_path / "x-no-number").mkdir()
    (tmp_path / "y-1-other").mkdir()
    mine = own_path(tmp_path, "x-")
    assert mine.name.startswith(f"x-{os.getpid()}-")
    assert mine != own_path(tmp_path, "x-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"x-{os.getppid()}-alive", "x-no-number", "y-1-other"]
    )
