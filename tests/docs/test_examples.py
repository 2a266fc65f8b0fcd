"""Every spec of `examples/` could be submitted, and a page says what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hillclimb.hardware.plan import hardware_plan
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_spec_that_a_machine_could_carry_out(example: Path) -> None:
    plan = hardware_plan(RunSpec.model_validate(yaml.safe_load(example.read_text())))
    assert plan is None or plan.reasons == ()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_named_by_a_page(example: Path) -> None:
    assert any(f"examples/{example.name}" in page.read_text() for page in PAGES)
