"""Docs and code never disagree: the pages are what the code would write."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from hillclimb.cli.commands import complete
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).resolve().parents[2]


def generator() -> object:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_what_the_code_says() -> None:
    stale = [
        path.name
        for path, content in generator().pages().items()  # type: ignore[attr-defined]
        if path.read_text() != content
    ]
    assert stale == [], "run `.venv/bin/python docs/generate.py`"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_is_a_valid_spec(path: Path) -> None:
    RunSpec.model_validate(yaml.safe_load(path.read_text()))


def test_the_readme_names_only_commands_and_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([a-z0-9]+)`", readme)) <= targets
    assert set(re.findall(r"^\$ hillclimb ([a-z]+)", readme, re.M)) <= set(complete().commands)


def test_every_file_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert [
        link for link in links if not link.startswith("http") and not (ROOT / link).exists()
    ] == []


def test_the_deployment_page_names_every_variable_of_runner_and_stack() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    sources = ("worker/runner/settings.py", "hillclimb/stack/options.py")
    read = "".join((ROOT / source).read_text() for source in sources)
    assert (
        sorted(name for name in set(re.findall(r"HILLCLIMB_[A-Z_]+", read)) if name not in page)
        == []
    )
