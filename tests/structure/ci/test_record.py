"""The record of a CI run: what it prints, and what fails it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_quick" time="0.5"/>
<testcase classname="tests.test_a" name="test_slow" time="{seconds}">{properties}</testcase>
</testsuite></testsuites>"""
REASON = '<properties><property name="invariant" value="nothing leaks"/></properties>'


def coverage(folder: Path, suite: str, executed: list[int], missing: list[int]) -> None:
    file = {
        "executed_lines": executed,
        "missing_lines": missing,
        "executed_branches": [[line, line + 1] for line in executed],
        "missing_branches": [[line, line + 1] for line in missing],
    }
    files = {f"{name}/a.py": file for name in ("api", "hillclimb", "trainer", "worker")}
    (folder / f"{suite}.json").write_text(json.dumps({"files": files}))


def record(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / ".ci/record.py",
        folder,
        "--floor",
        folder / "floor",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for suite in ("control", "trainer"):
        (tmp_path / f"{suite}.xml").write_text(SUITE.format(seconds="9.0", properties=REASON))
    coverage(tmp_path, "control", [1, 2], [3, 4])
    coverage(tmp_path, "trainer", [3], [1, 2, 4])
    assert record(tmp_path, "--accept").returncode == 0
    return tmp_path


def test_a_line_counts_that_one_of_the_suites_ran(folder: Path) -> None:
    done = record(folder)
    assert done.returncode == 0, done.stdout
    assert "record: api: 75.0 % of lines, 75.0 % of branches" in done.stdout
    slowest, *_ = [line for line in done.stdout.splitlines() if "test_slow" in line]
    assert slowest.split("  ")[-1] == "[nothing leaks]"


def test_a_package_that_lost_coverage_fails(folder: Path) -> None:
    coverage(folder, "trainer", [], [1, 2, 3, 4])
    done = record(folder)
    assert done.returncode == 1
    assert "record: worker: 50.0 % of branches covered, before 75.0 %" in done.stdout


def test_a_slow_test_without_an_invariant_fails(folder: Path) -> None:
    (folder / "trainer.xml").write_text(SUITE.format(seconds="21.0", properties=""))
    done = record(folder)
    assert done.returncode == 1
    assert "tests.test_a::test_slow takes 21.0 s and has no marker `invariant`" in done.stdout
    (folder / "trainer.xml").write_text(SUITE.format(seconds="7.0", properties=""))
    done = record(folder)
    assert (done.returncode, "[names no invariant]" in done.stdout) == (0, True)


def test_on_a_machine_of_half_the_speed_a_test_may_take_twice_as_long(folder: Path) -> None:
    many = '<testcase classname="tests.test_b" name="test_x" time="12.0"/>' * 400
    slow = SUITE.format(seconds="38.0", properties="")
    (folder / "trainer.xml").write_text(slow.replace("</testsuite>", many + "</testsuite>", 1))
    assert record(folder).returncode == 0
    slow = SUITE.format(seconds="41.0", properties="")
    (folder / "trainer.xml").write_text(slow.replace("</testsuite>", many + "</testsuite>", 1))
    assert record(folder).returncode == 1
