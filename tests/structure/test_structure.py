"""The limits of `.ci/structure.py`, and that it finds what passes them."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = runpy.run_path(str(ROOT / ".ci/structure.py"))


def a_tree(root: Path, files: Mapping[str, str]) -> Any:
    for name, text in files.items():
        path = root / "trainer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for folder in path.relative_to(root).parents[:-1]:
            (root / folder / "__init__.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return CODE["read_tree"](root, ["trainer"])


@pytest.mark.long  # `make check` runs it on the tree, as a command
@pytest.mark.invariant("the tree keeps its limits")
def test_our_own_tree_keeps_every_limit() -> None:
    tree = CODE["read_tree"](ROOT, CODE["PACKAGES"])
    assert list(CODE["violations"](tree, ROOT)) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        (
            {"a.py": "import trainer.b", "b.py": "from trainer import a"},
            ["trainer.a", "trainer.b"],
        ),
        (
            # No file is in a circle, and the folders are.
            {
                "x/one.py": "from trainer.y.one import f",
                "y/one.py": "",
                "y/two.py": "from trainer.x import two",
                "x/two.py": "",
            },
            ["trainer.x", "trainer.y"],
        ),
        (
            {
                "a.py": "def f():\n    from trainer.b import g",
                "b.py": "from trainer.c import h",
                "c.py": "from trainer.a import f",
            },
            ["trainer.a", "trainer.b", "trainer.c"],
        ),
    ],
)
def test_circles_between_files_and_between_folders_are_found(
    tmp_path: Path, files: dict[str, str], circle: list[str]
) -> None:
    assert CODE["circles"](a_tree(tmp_path, files)) == [circle]


def test_imports_one_way_are_no_circle(tmp_path: Path) -> None:
    files = {"x/one.py": "from trainer.y.one import f", "y/one.py": "", "z.py": "import trainer.x"}
    assert CODE["circles"](a_tree(tmp_path, files)) == []


def test_a_folder_is_counted_without_its_marker_file_and_data(tmp_path: Path) -> None:
    a_tree(tmp_path, {f"file_{number}.py": "" for number in range(3)})
    (tmp_path / "trainer" / "page.html").touch()
    assert CODE["folder_entries"](tmp_path)["trainer"] == 3


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    tree = a_tree(
        tmp_path, {"a.py": "class Twice: ...", "b.py": "class Twice: ...\nclass One: ..."}
    )
    assert CODE["duplicate_classes"](tree) == {"Twice": ["trainer.a", "trainer.b"]}
    (violation,) = CODE["violations"](tree, tmp_path)
    assert violation.startswith("Twice is a class of trainer.a and trainer.b")


def test_a_class_name_with_a_reason_still_has_several_meanings() -> None:
    """Of the files that define one of them: parsing all takes seconds."""
    names = CODE["SEVERAL_MEANINGS"].keys()
    grep = ["git", "grep", "--untracked", "-lE", rf"^class ({'|'.join(names)})\b"]
    done = subprocess.run(
        [*grep, "--", *CODE["PACKAGES"]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tree = CODE["read_tree"](ROOT, done.stdout.splitlines())
    assert names <= CODE["duplicate_classes"](tree).keys()


def test_only_handlers_that_swallow_any_exception_are_broad(tmp_path: Path) -> None:
    swallows = "try:\n    f()\nexcept Exception:\n    pass\n"
    passes_on = "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n"
    tree = a_tree(tmp_path, {"a.py": swallows, "b.py": passes_on})
    assert CODE["broad_excepts"](tree) == ["trainer/a.py:3"]
