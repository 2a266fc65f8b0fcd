"""The Python that the Makefile makes environments with: one that fits, and a fast one."""

from __future__ import annotations

import re
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
        ([("first", 11, True, 1.0), ("second", 11, True, 0.9)], "first"),
        ([("first", 11, True, 1.0), ("second", 11, True, 0.7)], "second"),
        (
            [("first", 11, True, 1.0), ("second", 11, True, 0.7), ("third", 11, True, 0.65)],
            "second",
        ),
        ([("first", 11, True, 0.7), ("second", 11, True, 1.0)], "first"),
        ([("newer", 12, True, 0.2), ("tried", 11, True, 1.0)], "tried"),
        ([("newer", 12, True, 1.0)], "newer"),
        ([("bare", 11, False, 0.2), ("complete", 11, True, 1.0)], "complete"),
        ([("complete", 12, True, 0.2), ("bare", 11, False, 1.0)], "bare"),
        ([], None),
    ],
)
def test_the_first_is_taken_or_a_later_one_that_is_clearly_faster(
    measured: list[tuple[str, int, bool, float]], chosen: str | None
) -> None:
    assert CHOICE["choose"]([CHOICE["Measured"](*each) for each in measured]) == chosen


def test_candidates_are_the_programs_on_path_in_its_order_each_file_once(tmp_path: Path) -> None:
    late = program(tmp_path / "a/python3.11", "")
    early = program(tmp_path / "b/python3", "")
    (tmp_path / "b/python3.11").symlink_to(late)
    (tmp_path / "b/python3.12").write_text("no program")
    path = f"{tmp_path / 'b'}::{tmp_path / 'missing'}:{tmp_path / 'a'}"
    assert CHOICE["candidates"](path) == [str(early), str(tmp_path / "b/python3.11")]


def test_each_name_of_a_version_manager_is_a_candidate(tmp_path: Path) -> None:
    """They are links to one program, which looks at the name that it was started by."""
    manager = program(tmp_path / "manager", "")
    names = [tmp_path / name for name in ("python3", "python3.11")]
    for name in names:
        name.symlink_to(manager)
    assert CHOICE["candidates"](str(tmp_path)) == list(map(str, names))


@pytest.mark.parametrize(
    "text",
    ["exit 127", "echo hello", "true", "echo fits 11 1 0.1; exit 1"],
    ids=["not installed", "no Python", "without output", "too old or without pip"],
)
def test_a_program_that_does_not_fit_is_passed_over(tmp_path: Path, text: str) -> None:
    assert CHOICE["probe"](str(program(tmp_path / "python3", text))) is None


def test_a_python_is_measured_by_its_version_and_seconds() -> None:
    measured = CHOICE["probe"](sys.executable)
    assert (measured.program, measured.minor) == (sys.executable, sys.version_info.minor)
    assert 0.0 < measured.seconds < 10.0


def test_where_none_fits_it_says_so_and_leaves_the_rest_to_pip(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "python3\n"
    assert done.stderr == CHOICE["NONE_FITS"] + "\n"


@pytest.mark.parametrize(
    ("script", "named"),
    [("echo /opt/fast", "/opt/fast"), ("exit 1", "python3"), ("", "python3")],
    ids=["found", "failing", "silent"],
)
def test_make_asks_once_and_has_a_python_in_any_case(
    tmp_path: Path, script: str, named: str
) -> None:
    asked = tmp_path / "asked"
    program(tmp_path / "bin/python3", f"echo >> {asked}\n{script}")
    (line,) = re.findall(r"^PYTHON \?= .*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"{line}\nnone:\nall:\n\t@echo $(PYTHON)\n\t@echo $(PYTHON)\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    for target, lines, times in (("none", [], 0), ("all", [named, named], 1)):
        done = subprocess.run(
            ["make", "--silent", target],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert [each for each in done.stdout.splitlines() if "Nothing" not in each] == lines
        assert (len(asked.read_text()) if asked.exists() else 0) == times


def test_every_environment_is_made_with_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "$(shell python3 requirements/interpreter.py)" in makefile
    assert makefile.count("-m venv ") == makefile.count("|| $(PYTHON) -m venv ") >= 7


def test_all_that_asks_for_a_version_asks_for_the_same() -> None:
    oldest = runpy.run_path(str(ROOT / "requirements/pins.py"))["OLDEST"]
    numbers = oldest.replace(".", ", ")
    texts = {
        "pyproject.toml": f'requires-python = ">={oldest},<3.13"',
        "requirements/interpreter.py": f"assert ({numbers}) <= sys.version_info < (3, 13)",
        "worker/skypilot/node_setup.py": f"({numbers}) <= sys.version_info < (3, 13)",
        "hillclimb/stack/doctor.py": f"({numbers}) <= sys.version_info < (3, 13)",
        "tests/e2e/compose/install_image.sh": f"({numbers}) <= sys.version_info < (3, 13)",
        "README.md": f"{oldest} or later",
        "docs/first-run.md": f"{oldest} or later",
        "docs/nodes.md": f"{oldest} or later",
    }
    assert [name for name, text in texts.items() if text not in (ROOT / name).read_text()] == []
