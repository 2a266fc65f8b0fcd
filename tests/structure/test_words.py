"""The names of the code agree with the glossary, and `.ci/words.py` finds those that do not."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = runpy.run_path(str(ROOT / ".ci/words.py"))
GLOSSARY = """
| term | meaning | in the code | also used by |
|---|---|---|---|
| run | one spec | `api.runs:Run` | dstack |

## Words that the code no longer uses

| instead of | write |
|---|---|
| crew | worker group |
| exchange code | bootstrap token |
"""


def complaints(root: Path, source: str, glossary: str = GLOSSARY) -> list[str]:
    """What is said of a tree whose one module has this source."""
    (root / "api").mkdir()
    (root / "docs").mkdir()
    (root / "api" / "runs.py").write_text(source)
    (root / "docs" / "glossary.md").write_text(glossary)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return list(CODE["violations"](root))


@pytest.mark.long  # `make check` runs it on the tree, as a command
def test_our_own_names_agree_with_the_glossary() -> None:
    assert list(CODE["violations"](ROOT)) == []


def test_good_words_pass(tmp_path: Path) -> None:
    source = '"""Runs."""\n\nclass Run:\n    """A run."""\n\ndef notify(args): ...\n'
    assert complaints(tmp_path, source) == []


@pytest.mark.parametrize(
    "name",
    ["RunNotFound", "NOT_FOUND", "held_out_envs", "asked_at", "last_held_at", "keep", "exchange"],
)
def test_words_of_the_field_pass_as_parts_of_a_name(tmp_path: Path, name: str) -> None:
    assert complaints(tmp_path, f"class Run: ...\n{name} = 1") == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class Run: ...\ndef f(given): ...", "'given'"),
        ("class Run: ...\nfor found in (): ...", "'found'"),
        ("class Run: ...\nGIVEN = 1", "'GIVEN'"),
        ("class Run: ...\nclass NodeTaken: ...", "'NodeTaken'"),
        ("class Run: ...\ndef f(is_held): ...", "'is_held'"),
        ("class Run: ...\nKEPT_AT_MOST = 1", "'KEPT_AT_MOST'"),
        ("class Run: ...\nclass RayCrew: ...", "'RayCrew': the glossary says 'worker group'"),
        ("class Run: ...\ndef make_crew(): ...", "'make_crew'"),
        ("class Run: ...\nEXCHANGE_CODE = 1", "'bootstrap token' instead of 'exchange code'"),
        ("class Run: ...\nself.crew = 1", "'crew'"),
        ("class Run: ...\nimport os as told", "'told'"),
        ('"""What a run is."""\nclass Run: ...', "opens with"),
        ("class Other: ...", "api.runs:Run, which is not there"),
    ],
)
def test_each_kind_of_word_is_found(tmp_path: Path, source: str, complaint: str) -> None:
    (only,) = complaints(tmp_path, source)
    assert complaint in only
