"""Writes the control plane's locks, with the hashes of every file that the index has of a version.

    .venv/bin/python requirements/control_lock.py

Pins what `.venv` holds. `service.txt` is what the API, the worker and beat import, `build.txt` what
builds the wheel, `clouds.txt` what the client and the server of SkyPilot need besides, and
`development.txt` everything else: embedded servers, figures, checks, tests. `make setup` installs
all four, an image of the service the first one, an image that rents machines the first three.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PROJECT = "hillclimb"
NOT_LOCKED = frozenset({PROJECT, "pip", "setuptools"})
FILES: Mapping[str, tuple[str, ...]] = {
    "service.txt": ("service",),
    "build.txt": ("build",),
    "clouds.txt": ("sky",),
    "development.txt": (),
}
"""Each file has what its extras need and no file before it has; the last one has all the rest."""
MADE_BY = "# Made by 'make lock' from what .venv holds; installed with --no-deps."
ON_OTHERS = {"service.txt": "async-timeout==5.0.1 ; python_full_version < '3.11.3'\n"}
"""Needed by another Python than this one: redis on Debian 12's 3.11.2."""
HEADS = {
    "service.txt": "Control plane: what the API, the worker and beat import; the images have this.",
    "build.txt": "Control plane: what builds the project's wheel, which rented nodes install.",
    "clouds.txt": "Control plane: what SkyPilot's client and server need besides.",
    "development.txt": "Control plane: embedded servers, figures, tools of checks and tests.",
}


def main() -> None:
    """Write the four files."""
    versions = {
        canonicalize_name(each.metadata["Name"]): each.version for each in metadata.distributions()
    }
    left = versions.keys() - NOT_LOCKED
    for name, extras in FILES.items():
        here = left & set(_needed(extras)) if extras else left
        left = left - here
        pins = "".join(f"{package}=={versions[package]}\n" for package in sorted(here))
        pins += ON_OTHERS.get(name, "")
        (HERE / name).write_text(f"# {HEADS[name]}\n{MADE_BY}\n{_with_hashes(pins)}")


def _needed(extras: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of all packages that the project with these extras needs."""
    table = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    lines = [
        *table["dependencies"],
        *(e for x in extras for e in table["optional-dependencies"][x]),
    ]
    todo, done = [Requirement(line) for line in lines], set()
    while todo:
        requirement = todo.pop()
        if (key := str(requirement)) in done:
            continue
        done.add(key)
        yield canonicalize_name(requirement.name)
        wanted = ("", *requirement.extras)
        for line in metadata.distribution(requirement.name).requires or ():
            needed = Requirement(line)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted):
                todo.append(needed)


def _with_hashes(pins: str) -> str:
    """Return the pins with their hashes, as pip checks them; uv asks the index for these."""
    command = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--no-header")
    done = subprocess.run(
        [*command, "--no-annotate", "--universal", "--generate-hashes", "-"],
        input=pins,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


if __name__ == "__main__":
    main()
