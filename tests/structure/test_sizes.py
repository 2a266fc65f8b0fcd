"""The budgets of the code base: files of one idea, functions that fit a screen."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.structure.statements import statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "hillclimb", "trainer", "worker")
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


def tracked(*roots: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *roots],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def sources() -> list[Path]:
    return [path for path in tracked(*PACKAGES) if path.suffix == ".py"]


def num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_python_file_is_longer_than_500_lines() -> None:
    files = [path for path in tracked(".") if path.suffix == ".py"]
    assert {str(p.relative_to(ROOT)): num_lines(p) for p in files if num_lines(p) > 500} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in sources()
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 60
    }
    assert long == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_has_a_name_that_says_nothing(package: str) -> None:
    names = [part for path in tracked(package) for part in (path.stem, path.parent.name)]
    assert FORBIDDEN.isdisjoint(names)


def test_tracked_binaries_stay_below_8_mb_together() -> None:
    big = [path for path in tracked(".") if path.suffix in {".safetensors", ".bin", ".png", ".gif"}]
    assert sum(path.stat().st_size for path in big) <= 8 * 2**20
