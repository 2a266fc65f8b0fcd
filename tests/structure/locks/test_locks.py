"""Every lock has hashes of its files, and every command that installs one has them checked."""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from hillclimb.spec.backend.skypilot import TrainerInstall
from worker.skypilot.node_setup import setup_script

ROOT = Path(__file__).parents[3]
TORCH = "torch.txt"
"""The one lock without: which file of torch a machine without GPUs gets depends on its index."""
LOCKS = sorted(path for path in (ROOT / "requirements").glob("*.txt") if path.name != TORCH)
INSTALLING = (
    "Makefile",
    "Dockerfile",
    "tests/e2e/browser/install.sh",
    "tests/e2e/compose/install_image.sh",
    "docs/own-gpu.md",
    "benchmarks/trainer/README.md",
)
TRL = "benchmarks/trainer/requirements.txt"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_of_a_lock_has_the_hashes_of_its_files(lock: Path) -> None:
    pins = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text())[1:]
    assert pins
    assert [pin for pin in pins if not re.search(r"--hash=sha256:[0-9a-f]{64}", pin)] == []


def test_torch_is_all_that_has_none() -> None:
    text = (ROOT / "requirements" / TORCH).read_text()
    (pin,) = [line for line in text.splitlines() if not line.startswith("#")]
    assert re.fullmatch(r"torch==[\d.]+", pin)
    assert "\ntorch==" not in (ROOT / "requirements/trainer.txt").read_text()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_no_hashes_of_machines_that_nobody_has(lock: Path) -> None:
    """With those of all platforms the trainer's two would have 800 kB."""
    assert lock.stat().st_size < 300_000


def installs(text: str) -> Iterator[tuple[str, str]]:
    """Each command in which pip installs what a file names: the command and the file."""
    for command in re.split(r"&&|\|\||;|\n", re.sub(r"\\\n\s*", " ", text)):
        if named := re.search(r"(?:pip install|\$\(PIP\)).* -r (\S+)", command):
            yield command, named[1]


def test_whoever_installs_a_lock_has_its_hashes_checked() -> None:
    script = setup_script(TrainerInstall(type="wheel"), "hillclimb.whl")
    texts = [(ROOT / path).read_text() for path in INSTALLING] + [script]
    found = [each for text in texts for each in installs(text)]
    assert len(found) >= 20
    unchecked = {Path(lock).name for command, lock in found if "--require-hashes" not in command}
    assert unchecked == {TORCH, Path(TRL).name}


def wheel(folder: Path, text: str) -> str:
    """A wheel of a package `locked` that has `text`; returns its hash."""
    info = "locked-1.0.dist-info"
    path = folder / "locked-1.0-py3-none-any.whl"
    files = {
        "locked.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            # Without a time of its own an entry gets that of now, and the same text another hash.
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("locked", "served", "complaint"),
    [
        ("x = 1", "x = 1", None),
        ("x = 1", "x = 2", "DO NOT MATCH THE HASHES"),
        (None, "x = 1", "Hashes are required"),
    ],
    ids=["as locked", "replaced at the index", "without a hash"],
)
def test_what_is_not_the_locked_file_is_not_installed(
    locked: str | None, served: str, complaint: str | None, tmp_path: Path
) -> None:
    """By pip with the options of `make setup`."""
    line = re.search(r"\(PIP\) (.*)-r requirements/trainer\.txt", (ROOT / "Makefile").read_text())
    assert line is not None
    lock = tmp_path / "lock.txt"
    known = f" --hash=sha256:{wheel(tmp_path, locked)}" if locked else ""
    lock.write_text(f"locked==1.0{known}\n")
    wheel(tmp_path, served)
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(tmp_path)]
    command += ["--dry-run", *line[1].split(), "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if complaint is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert complaint in done.stderr


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("six-1.0-py2.py3-none-any.whl", True),
        ("ninja-1.0-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.whl", True),
        ("numpy-1.0-cp311-cp311-manylinux_2_27_x86_64.whl", True),
        ("numpy-1.0-cp312-cp312-manylinux_2_27_aarch64.whl", True),
        ("numpy-1.0-cp312-cp312-macosx_14_0_arm64.whl", True),
        ("ray-1.0-cp39-abi3-manylinux2014_x86_64.whl", True),
        ("new-1.0-cp313-abi3-manylinux2014_x86_64.whl", False),
        ("numpy-1.0-cp313-cp313-manylinux_2_27_x86_64.whl", False),
        ("numpy-1.0-cp310-cp310-manylinux_2_27_x86_64.whl", False),
        ("numpy-1.0-cp313-cp313t-manylinux_2_27_x86_64.whl", False),
        ("numpy-1.0-pp311-pypy311_pp73-manylinux_2_27_x86_64.whl", False),
        ("numpy-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", False),
        ("numpy-1.0-cp311-cp311-win_amd64.whl", False),
        ("numpy-1.0-cp311-cp311-manylinux_2_17_s390x.whl", False),
    ],
)
def test_files_are_locked_for_the_machines_that_train(name: str, *, is_kept: bool) -> None:
    fits: Callable[[str], bool] = runpy.run_path(str(ROOT / "requirements/pins.py"))["fits"]
    assert fits(name) is is_kept


def test_every_installed_package_allows_the_oldest_python() -> None:
    """Debian 12's Python; of the environments that are there."""
    oldest = runpy.run_path(str(ROOT / "requirements/pins.py"))["OLDEST"]
    environments = re.findall(
        r"^(\.venv[a-z-]*)/\.ready:", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    checked, refusing = 0, []
    for name in environments:
        folders = [str(path) for path in (ROOT / name).glob("lib/python3.*/site-packages")]
        for each in distributions(path=folders):
            needs = each.metadata.get("Requires-Python", "")
            checked += 1
            if oldest not in SpecifierSet(needs):
                refusing.append((name, each.name, needs))
    assert checked > 200
    assert refusing == []
