"""The wheel and the locks that nodes install: of this very code, so both ends agree."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "trainer.txt"
GPU_LOCK = ROOT / "requirements" / "trainer-gpu.txt"
PACKED = ("hillclimb", "api", "worker", "trainer", "assets")
BUILD_S = 45.0


class NoWheel(Exception):
    """There is no wheel and none can be built; the message is a sentence."""


def find_locks() -> tuple[Path, Path]:
    """Return the data plane's locks, for machines without GPUs and with. Raises NoWheel."""
    for lock in (LOCK, GPU_LOCK):
        if not lock.is_file():
            raise NoWheel(f"{lock} is not there: the worker runs from a source tree")
    return LOCK, GPU_LOCK


def find_wheel(given: str | None) -> Path:
    """Return the wheel that is given, or one built of the source tree and kept.

    Raises NoWheel.
    """
    if given:
        wheel = Path(given)
        if not wheel.is_file():
            raise NoWheel(f"HILLCLIMB_WHEEL={given}: there is no such file")
        return wheel
    if not (ROOT / "pyproject.toml").is_file():
        raise NoWheel("this is no source tree to build a wheel of: set HILLCLIMB_WHEEL")
    kept = Path.home() / ".cache" / "hillclimb" / f"wheel-{source_digest()}"
    return next(iter(kept.glob("*.whl")), None) or _build(kept)


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
            timeout=BUILD_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoWheel(
            f"the wheel was not built in {BUILD_S:.0f} s: build it before and set HILLCLIMB_WHEEL"
        ) from error


def _build(folder: Path) -> Path:
    """Build into a folder of its own, then move it: two workers may build at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        done = _run_pip(fresh)
        built = next(iter(Path(fresh).glob("*.whl")), None)
        if built is None:
            raise NoWheel(f"the wheel was not built: {done.stderr.strip()[-500:]}")
        folder.mkdir(exist_ok=True)
        return built.replace(folder / built.name)
