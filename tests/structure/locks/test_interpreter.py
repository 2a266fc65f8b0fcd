"""The Python that the Makefile makes environments with: one that fits, and a fast one."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "requirements/interpreter.py"
CHOICE = runpy.run_path(str(SCRIPT))


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        ([("first", 11, 1.0), ("second", 11, 0.9)], "first"),
        ([("first", 11, 1.0), ("second", 11, 0.7)], "second"),
        ([("first", 11, 1.0), ("second", 11, 0.7), ("third", 11, 0.65)], "second"),
        ([("first", 11, 0.7), ("second", 11, 1.0)], "first"),
        ([("newer", 12, 0.2), ("tried", 11, 1.0)], "tried"),
        ([("newer", 12, 1.0)], "newer"),
        ([], None),
    ],
)
def test_the_first_is_taken_unless_another_is_clearly_faster(
    measured: list[tuple[str, int, float]], chosen: str | None
) -> None:
    assert CHOICE["choose"]([CHOICE["Measured"](*each) for each in measured]) == chosen


def test_candidates_are_the_programs_on_path_in_its_order_each_file_once(tmp_path: Path) -> None:
    late = program(tmp_path / "a/python3.11", "")
    early = program(tmp_path / "b/python3", "")
    (tmp_path / "b/python3.11").symlink_to(late)
    (tmp_path / "b/python3.12").write_text("no program")
    path = f"{tmp_path / 'b'}:{tmp_path / 'missing'}:{tmp_path / 'a'}"
    assert CHOICE["candidates"](path) == [str(early), str(tmp_path / "b/python3.11")]


@pytest.mark.parametrize(
    "text",
    ["exit 127", "echo 10 0.1", "echo 13 0.1", "echo 11 0.1; exit 1"],
    ids=["not installed", "too old", "too new", "without headers or pip"],
)
def test_a_python_that_does_not_fit_is_passed_over(tmp_path: Path, text: str) -> None:
    assert CHOICE["probe"](str(program(tmp_path / "python3", text))) is None


def test_a_python_is_measured_by_its_version_and_seconds() -> None:
    name, minor, seconds = CHOICE["probe"](sys.executable)
    assert (name, minor) == (sys.executable, sys.version_info.minor)
    assert 0.0 < seconds < 10.0


def test_where_none_fits_it_is_left_to_pip_to_say_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "python3\n"


def test_every_environment_is_made_with_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "PYTHON ?= $(shell python3 requirements/interpreter.py)\n" in makefile
    assert makefile.count("-m venv ") == makefile.count("|| $(PYTHON) -m venv ") >= 7
