"""Deletes instances that attempts left: `python -m trainer.envs.sweep --run-dir DIR`.

After a `kill -9` no process of the attempt is left to delete them. The runner starts this command
once a trainer has exited; repeating it is harmless. Without `--attempt` it skips, and names,
attempts that still run or that have neither an exit record nor a dead process. Exit code 0: all
instances of the others are deleted. 1: some remain, or the platform does not answer; standard
error says which.
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
