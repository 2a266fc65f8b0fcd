"""Parts whose long tests need not be repeated: what makes them run again, and what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.trainer.test_a" name="test_passed"/>
<testcase classname="tests.assets.test_b" name="test_passed"><properties/></testcase>
<testcase classname="tests.trainer.test_a" name="test_skipped"><skipped/></testcase>
<testcase classname="tests.trainers.test_a" name="test_of_another_part"/>
</testsuite></testsuites>"""
FAILED = """<testcase classname="tests.trainer.test_c" name="test_lives"/>
<testcase classname="tests.trainer.test_c" name="test_dies"><failure/></testcase>"""

SHORT = "tests/trainer/rollouts/records/test_replay.py"
"""It compares the trainer with the service; no long test does."""

UNWATCHED = {"docs", "hillclimb/cli"}
"""Folders, the second one by the trainer."""


@pytest.fixture
def script() -> ModuleType:
    spec = spec_from_file_location("passed", ROOT / ".ci/passed.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["passed"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(script: ModuleType, tmp_path: Path) -> Path:
    """A checkout with a file in every place that a part watches."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for path in {path for part in script.PARTS.values() for path in part.watches} | UNWATCHED:
        at = tmp_path / path.replace("*", "any")
        file = at if at.suffix else at / "code.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    report = tmp_path / "docs/report.xml"
    report.write_text(REPORT)
    assert script.store("trainer", report, tmp_path).startswith("passed: 2 long tests of trainer")
    return tmp_path


def test_a_part_runs_again_when_anything_that_it_watches_changed(
    script: ModuleType, tree: Path
) -> None:
    assert script.has_passed("trainer", tree)
    assert not script.has_passed("api", tree)
    for unwatched in ("docs/code.py", "api/code.py", "api/new.py", "hillclimb/cli/new.py"):
        (tree / unwatched).write_text("x = 2\n")
        assert script.has_passed("trainer", tree)
    for watched in ("trainer/code.py", "hillclimb/blobs/new.py", "requirements/trainer.txt"):
        (tree / watched).write_text("x = 3\n")
        assert not script.has_passed("trainer", tree)
        script.store("trainer", tree / "docs/report.xml", tree)
        assert script.has_passed("trainer", tree)
    (tree / "hillclimb/blobs/new.py").unlink()
    assert not script.has_passed("trainer", tree)


def test_a_run_that_left_tests_out_stores_nothing(script: ModuleType, tree: Path) -> None:
    (tree / "trainer/code.py").write_text("x = 2\n")
    report = tree / "docs/report.xml"
    report.write_text(REPORT.replace("<properties/>", "<skipped/>"))
    assert "1 long tests of trainer ran here, 2 before" in script.store("trainer", report, tree)
    assert not script.has_passed("trainer", tree)
    assert json.loads((tree / script.RECORD).read_text())["trainer"]["tests"] == 2


def test_a_run_with_a_failure_stores_nothing(script: ModuleType, tree: Path) -> None:
    """However many more passed than before: this is what a shell that goes on would store."""
    (tree / "trainer/code.py").write_text("x = 2\n")
    report = tree / "docs/report.xml"
    more = REPORT.replace("</testsuite>", f"{FAILED}</testsuite>", 1)
    assert more != REPORT
    report.write_text(more)
    with pytest.raises(SystemExit, match="test_dies and 0 others failed"):
        script.store("trainer", report, tree)
    assert not script.has_passed("trainer", tree)


def test_a_path_where_nothing_is_ends_it(script: ModuleType, tree: Path) -> None:
    (tree / "alembic.ini").unlink()
    with pytest.raises(SystemExit, match=r"nothing is at alembic\.ini"):
        script.has_passed("api", tree)


def test_every_module_of_ours_that_a_part_imports_is_watched(script: ModuleType) -> None:
    assert "mark.long" not in (ROOT / SHORT).read_text()
    for name, part in script.PARTS.items():
        watched = set(script.watched_files(part))
        search = ["git", "grep", "-hoP", r"^\s*(from|import) \K[a-z_]+(\.[a-z_]+)*", "--"]
        found = subprocess.run(
            [*search, *(file for file in watched - {SHORT} if file.endswith(".py"))],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        imported = {module.replace(".", "/") for module in found.stdout.split()}
        ours = {f"{path}.py" for path in imported} | {f"{path}/__init__.py" for path in imported}
        missing = {file for file in ours - watched if (ROOT / file).exists()}
        assert not missing, f"{name} imports them"
