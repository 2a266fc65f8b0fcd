"""The page of dependencies names every package that is held back, with the locks' versions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import Specifier
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "dependencies.md").read_text()
NAMED = {canonicalize_name(name) for name in re.findall(r"`([A-Za-z0-9._-]+)`", PAGE)}
NOT_OURS = {"hillclimb", "pip", "editables"}


def section(heading: str) -> str:
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def locked(*locks: str) -> dict[str, str]:
    pin = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.M)
    texts = [(ROOT / "requirements" / f"{lock}.txt").read_text() for lock in locks]
    return {
        canonicalize_name(name): version for text in texts for name, version in pin.findall(text)
    }


def is_held(version: Version, bound: Specifier) -> bool:
    """Whether the bound forbids a version before the next major one."""
    limit = Version(bound.version.removesuffix(".*"))
    if bound.operator == "==":
        return not bound.version.endswith(".*")
    if bound.operator == "~=":
        return len(limit.release) > 2
    return bound.operator in ("<", "<=") and limit.major == version.major


def requirements_of_ours() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    for text in (
        *project["dependencies"],
        *(line for lines in optional.values() for line in lines),
    ):
        yield Requirement(text)


def installed(environment: str) -> dict[str, Distribution]:
    paths = [str(path) for path in (ROOT / environment).glob("lib/python*/site-packages")]
    return {canonicalize_name(each.metadata["Name"]): each for each in distributions(path=paths)}


def test_what_we_hold_back_is_in_the_table_of_ours() -> None:
    versions = locked("service", "clouds", "trainer", "trainer-gpu", "development")
    held = {
        canonicalize_name(each.name)
        for each in requirements_of_ours()
        for bound in each.specifier
        if is_held(Version(versions[canonicalize_name(each.name)]), bound)
    }
    table = section("Held back by us")
    assert {"fastapi", "torch", "skypilot", "uvicorn"} <= held
    assert [name for name in sorted(held) if f"`{name}`" not in table] == []


@pytest.mark.parametrize("environment", [".venv", ".venv-trainer"])
def test_what_others_hold_back_is_named(environment: str) -> None:
    have = installed(environment)
    assert "pydantic" in have
    held: dict[str, str] = {}
    for name, holder in have.items():
        for text in holder.requires or []:
            each = Requirement(text)
            target = have.get(canonicalize_name(each.name))
            if target is None or (each.marker and not each.marker.evaluate({"extra": ""})):
                continue
            if any(is_held(Version(target.version), bound) for bound in each.specifier):
                held[canonicalize_name(each.name)] = name
    assert {name: held[name] for name in sorted(held.keys() - NAMED - NOT_OURS)} == {}


def test_the_versions_of_the_page_are_those_of_the_locks() -> None:
    control, trainer = locked("service", "clouds"), locked("trainer")
    told = re.findall(r"`([a-z0-9-]+)` \((\d[\d.]*\d)", PAGE)
    assert len(told) > 6
    for name, version in told:
        pins = [pins[name] for pins in (control, trainer) if name in pins]
        assert any(pin == version or pin.startswith(f"{version}.") for pin in pins), name


def test_old_packages_are_still_there() -> None:
    have = locked("service", "clouds", "trainer").keys()
    rows = [line for line in section("Old, or without maintainers").splitlines() if "`" in line]
    old = {
        canonicalize_name(name)
        for row in rows
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert len(old) > 20
    assert old - have == set()


def test_the_bill_of_materials_has_the_locks_of_all_that_is_installed_elsewhere() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [locks] = re.findall(r"^SHIPPED_LOCKS := (.*)$", makefile, re.M)
    assert [name for name in locks.split() if f"{name}.cdx.json" not in PAGE] == []
    assert {"service", "clouds", "trainer", "torch", "trainer-gpu"} == set(locks.split())
