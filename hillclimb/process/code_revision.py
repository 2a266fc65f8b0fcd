"""Identifies the code of this process: package version, git revision, digests of sources and locks.

An installation from a wheel has no git and no locks: there the digest of the sources says whether
two processes ran the same code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REVISION_VARIABLE = "HILLCLIMB_CODE_REVISION"
"""Environment variable with the git revision that an image was built from."""
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hillclimb", "trainer")
"""Packages that decide a run's figures: the digest of the sources covers them."""
GIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRevision:
    """The code that a process runs."""

    package_version: str
    revision: str | None
    """Commit hash, with `-dirty` if tracked files differ from it; null where it is not known."""
    source_digest: str
    """SHA-256 over path and content of every Python file of the core and the trainer."""
    locks: dict[str, str]
    """SHA-256 of each lock file (`requirements/*.txt`), by name; empty in a wheel."""


@cache
def code_revision() -> CodeRevision:
    """Return the code of this process, read once: later changes of the files do not count."""
    return CodeRevision(
        package_version=_package_version(),
        revision=os.environ.get(REVISION_VARIABLE) or git_revision(ROOT),
        source_digest=source_digest(ROOT),
        locks={path.name: _sha256(path) for path in sorted(ROOT.glob("requirements/*.txt"))},
    )


def source_digest(root: Path) -> str:
    """Return the SHA-256 over path and content of every Python file of `PACKAGES` below `root`."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()} {_sha256(path)}\n".encode())
    return digest.hexdigest()


def git_revision(root: Path) -> str | None:
    """Return the commit that `root` is checked out at; None where `root` is no checkout.

    The directory must be the checkout's own: a virtual environment inside another repository is
    not that repository's code.
    """
    if not (root / ".git").exists():
        return None
    command = ("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40")
    try:
        done = subprocess.run(
            (*command, "--exclude=*"),
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _package_version() -> str:
    try:
        return version("hillclimb")
    except PackageNotFoundError:
        return "0"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
