"""Reads the pins of a lock, and adds the hashes of the files that a machine of ours may install.

The index has files for machines that nobody trains on, five times as many: uv asks it for all, and
those for Python 3.11 and 3.12 on Linux or macOS are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

MINORS = (11, 12)
"""Versions of Python 3 that `requires-python` in pyproject.toml allows."""
OLDEST = "3.11.2"
"""Debian 12's Python: a package that needs a later one is refused."""
LINUX, MACOS = ("x86_64", "aarch64"), ("arm64", "x86_64", "universal2")


class NoFile(Exception):
    """The index has no file of a pinned version that a machine of ours could install."""


def read_pins(lock: str) -> list[str]:
    """Return the pins of a lock file (`name==version`, with a condition where it has one)."""
    lines = [line.removesuffix(" \\") for line in lock.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", " "))]


def with_hashes(pins: Iterable[str], *, macos: bool = True) -> str:
    """Return the pins (`name==version`, conditions allowed) with hashes, as pip checks them.

    Raises:
        NoFile: see there.
    """
    lines = list(pins)
    files = {
        (canonicalize_name(each["name"]), each["version"]): sorted(_hashes(each, macos=macos))
        for each in _packages(lines)
    }
    locked = []
    for line in lines:
        name, _, version = line.partition(" ;")[0].partition("==")
        hashes = files[canonicalize_name(name), version]
        if not hashes:
            raise NoFile(f"{name} {version} has no file for any of our machines")
        locked.append(" \\\n    ".join([line, *(f"--hash=sha256:{each}" for each in hashes)]))
    return "\n".join(locked) + "\n"


def _packages(pins: list[str]) -> list[Mapping[str, Any]]:
    """Return the files of the pinned versions by package, as uv's lock (PEP 751) has them."""
    command = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--universal")
    done = subprocess.run(
        [*command, "--python-version", OLDEST, "--format", "pylock.toml", "-"],
        input="\n".join(pins),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    packages: list[Mapping[str, Any]] = tomllib.loads(done.stdout)["packages"]
    return packages


def _hashes(package: Mapping[str, Any], *, macos: bool) -> Iterator[str]:
    """Yield the hashes of the wheels that fit, or where the package has no wheel of its source."""
    wheels = package.get("wheels", [])
    for wheel in wheels:
        name = wheel.get("name") or wheel["url"].rpartition("/")[2]
        if fits(name, macos=macos):
            yield wheel["hashes"]["sha256"]
    if not wheels:
        yield package["sdist"]["hashes"]["sha256"]


def fits(wheel: str, *, macos: bool = True) -> bool:
    """Tell whether a machine of ours could install the wheel of this file name."""
    tags = parse_wheel_filename(wheel)[3]
    return any(_is_python(tag) and _is_platform(tag.platform, macos=macos) for tag in tags)


def _is_python(tag: Tag) -> bool:
    if not tag.interpreter.startswith(("cp3", "py3")):
        return False
    minor = int(tag.interpreter[3:] or 0)
    if tag.abi == "abi3":
        return minor <= max(MINORS)
    if tag.interpreter.startswith("cp"):
        return minor in MINORS and tag.abi in ("none", tag.interpreter)
    return minor <= max(MINORS) and tag.abi == "none"


def _is_platform(platform: str, *, macos: bool) -> bool:
    if platform.startswith(("manylinux", "linux")):
        return platform.endswith(LINUX)
    if platform.startswith("macosx"):
        return macos and platform.endswith(MACOS)
    return platform == "any"
