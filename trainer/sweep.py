"""`python -m trainer.sweep --run-dir DIR [--attempt N]`: delete what attempts left on platforms.

For after a `kill -9`, when nobody of the attempt is there to do it. The runner starts it when it
sees that a trainer is gone; repeated, it does nothing. Exit code 0: nothing is left. 1: the
platform says otherwise, or does not answer; standard error says which.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.envs.fleet.faults import WireFault
from trainer.envs.fleet.sweep import sweep_run
from trainer.errors import SpecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.sweep", description="Delete what attempts of a run left behind."
    )
    parser.add_argument(
        "--run-dir", type=Path, required=True, help="directory of the run; its name is the run id"
    )
    parser.add_argument("--attempt", type=int, help="only this attempt (default: all)")
    given = parser.parse_args(arguments)
    try:
        num_swept = sweep_run(given.run_dir.resolve(), given.attempt, os.environ)
    except (SpecError, WireFault) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{num_swept} instances deleted\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
