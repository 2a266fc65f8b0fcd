"""The revision of the code: of its own checkout alone, and a digest that follows the sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hillclimb.process.code_revision import git_revision, source_digest


def git(root: Path, *words: str) -> str:
    options = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    command = ("git", "-C", str(root), *options, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "loss.py").write_text("A = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_checkout_has_its_commit_and_says_when_files_differ(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert git_revision(checkout) == commit
    (checkout / "trainer" / "loss.py").write_text("A = 2\n")
    assert git_revision(checkout) == f"{commit}-dirty"


def test_a_directory_inside_another_repository_has_no_revision(checkout: Path) -> None:
    assert git_revision(checkout / "trainer") is None


def test_the_digest_changes_with_content_and_name_of_a_source_and_with_nothing_else(
    checkout: Path,
) -> None:
    before = source_digest(checkout)
    (checkout / "README.md").write_text("x")
    assert source_digest(checkout) == before
    (checkout / "trainer" / "loss.py").rename(checkout / "trainer" / "gspo.py")
    renamed = source_digest(checkout)
    (checkout / "trainer" / "gspo.py").write_text("A = 2\n")
    assert len({before, renamed, source_digest(checkout)}) == 3
