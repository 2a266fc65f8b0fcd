"""The data plane's interpreter of the tests that start a stack."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hillclimb.stack.options import CODE_ROOT
from tests.conformance.service import TRAINER_PYTHON

WHERE = "import hillclimb, trainer; print(trainer.__file__, hillclimb.__file__)"
NODES = "earlier"
"""A folder of the path, as a node has one with the wheel."""


@pytest.mark.parametrize("path", [None, NODES])
def test_trainers_are_those_of_the_checkout_under_test(tmp_path: Path, path: str | None) -> None:
    """Not those of the checkout for which the environment was made; a node's wheel goes before."""
    (tmp_path / NODES / "trainer").mkdir(parents=True)
    (tmp_path / NODES / "trainer" / "__init__.py").touch()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {} if path is None else {"PYTHONPATH": str(tmp_path / path)}
    done = subprocess.run(
        [str(TRAINER_PYTHON), "-c", WHERE],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    trainer, hillclimb = (Path(word) for word in done.stdout.split())
    assert trainer.parents[1] == (CODE_ROOT if path is None else tmp_path / path)
    assert hillclimb.parents[1] == CODE_ROOT
