"""A stack of its own in a temporary directory, as a user has one who knows nothing but README."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hillclimb.stack.system.ports import find_free
from tests.conformance.service import TRAINER_PYTHON

ROOT = Path(__file__).parents[4]


def environment_in(folder: Path) -> dict[str, str]:
    """Return the environment of a shell whose stack keeps its state under `folder`."""
    environment = {name: value for name, value in os.environ.items() if name[:10] != "HILLCLIMB_"}
    return environment | {
        "HILLCLIMB_STATE_DIR": str(folder / "state"),
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HILLCLIMB_HOME": str(ROOT),
        "HILLCLIMB_TRAINER_PYTHON": str(TRAINER_PYTHON),
        "COLUMNS": "80",
        # Two stacks that start at once would both find the usual port free.
        "HILLCLIMB_API_PORT": str(find_free()),
    }


def stop_in(folder: Path, environment: dict[str, str]) -> None:
    """Stop the stack, whatever state it is in."""
    subprocess.run(["hillclimb", "down"], env=environment, cwd=folder, check=False)
