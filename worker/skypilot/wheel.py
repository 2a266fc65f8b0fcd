"""Finds or builds the wheel and the locks that nodes install, so that both ends run one code."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from worker.deadlines import WHEEL_BUILD_S

ROOT = Path(__file__).parents[2]
LOCKS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("trainer", "torch", "trainer-gpu"))
PACKED = ("hillclimb", "api", "worker", "trainer", "assets")


class NoWheel(Exception):
    """No wheel exists and none can be built; the message is a sentence."""


def find_locks() -> tuple[Path, ...]:
    """Return the trainer's locks: two for machines without GPUs, one for others. Raises NoWheel."""
    for lock in LOCKS:
        if not lock.is_file():
            raise NoWheel(f"{lock} does not exist: the worker must run from a source tree")
    return LOCKS


def find_wheel(path: str | None) -> Path:
    """Return the configured wheel, or one built from the source tree and cached.

    Raises NoWheel.
    """
    if path:
        wheel = Path(path)
        if not wheel.is_file():
            raise NoWheel(f"HILLCLIMB_WHEEL={path}: no such file")
        return wheel
    if not (ROOT / "pyproject.toml").is_file():
        raise NoWheel("there is no source tree to build a wheel from: set HILLCLIMB_WHEEL")
    cache = Path.home() / ".cache" / "hillclimb" / f"wheel-{source_digest()}"
    return next(iter(cache.glob("*.whl")), None) or _build(cache)


def source_digest() -> str:
    """Return a digest of everything that goes into the wheel."""
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    for package in PACKED:
        for file in sorted((ROOT / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(file.relative_to(ROOT).as_posix().encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _run_pip(folder: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            (
                *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
                *("--no-build-isolation", "--wheel-dir", folder, str(ROOT)),
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=WHEEL_BUILD_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoWheel(
            f"the wheel was not built in {WHEEL_BUILD_S:.0f} s: build it before"
            " and set HILLCLIMB_WHEEL"
        ) from error


def _build(folder: Path) -> Path:
    """Build into a temporary folder, then move the wheel: two workers may build at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        done = _run_pip(fresh)
        built = next(iter(Path(fresh).glob("*.whl")), None)
        if built is None:
            raise NoWheel(f"the wheel was not built: {done.stderr.strip()[-500:]}")
        folder.mkdir(exist_ok=True)
        return built.replace(folder / built.name)
