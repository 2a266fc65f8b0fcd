"""Deletes instances that attempts left: `python -m trainer.envs.sweep --run-dir DIR`.

For after a `kill -9`, when nobody of the attempt is there to do it. The runner starts it when it
sees that a trainer is gone; repeated, it does nothing. Without `--attempt` it
leaves an attempt alone that still runs, or that has neither an exit record nor a process that is
gone, and says so. Exit code 0: nothing is left of the others. 1: the platform says otherwise, or
does not answer; standard error says which.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.envs.fleet.sweep import sweep_run
from trainer.envs.fleet.wire.faults import WireFault
from trainer.errors import SpecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.envs.sweep",
        description="Delete what attempts of a run left behind.",
    )
    parser.add_argument(
        "--run-dir", type=Path, required=True, help="directory of the run; its name is the run id"
    )
    parser.add_argument(
        "--attempt",
        type=int,
        help="only this attempt, however it is (default: all that have ended)",
    )
    args = parser.parse_args(arguments)
    try:
        swept = sweep_run(args.run_dir.resolve(), args.attempt, os.environ)
    except (SpecError, WireFault) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{swept.num_deleted} instances deleted\n")
    for number in swept.skipped:
        sys.stderr.write(
            f"attempt {number} was left alone, as nothing says that it has ended:"
            f" --attempt {number} deletes what it holds\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
