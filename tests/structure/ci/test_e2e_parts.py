"""`make e2e` runs every folder of `tests/e2e`, each in one of its parts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]

OWN_TARGET = {"chaos"}
"""Run by `make chaos` alone."""


def test_every_folder_with_tests_is_in_exactly_one_part() -> None:
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    planned = subprocess.run(
        ["make", "-n", "e2e", "PYTHON=python3"],  # else it measures which Python is the fastest
        cwd=ROOT, env=shell, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    calls = [line.split() for line in planned.splitlines() if " -m pytest " in line]
    paths = [word for call in calls for word in call if word.startswith("tests/")]
    folder = ROOT / "tests" / "e2e"
    expected = {f"tests/e2e/{each.parent.name}" for each in folder.glob("*/test_*.py")}
    expected |= {f"tests/e2e/{each.name}" for each in folder.glob("test_*.py")}
    expected -= {f"tests/e2e/{name}" for name in OWN_TARGET}
    assert sorted(paths) == sorted(expected | {"tests/conformance"})
