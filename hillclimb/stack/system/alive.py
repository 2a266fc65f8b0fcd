"""A file that a process without a port touches while it works, for the health check of a container.

`python -m hillclimb.stack.system.alive` is that check: it fails when the file of
`HILLCLIMB_ALIVE_FILE` is missing or was not touched for `SILENT_S`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "HILLCLIMB_ALIVE_FILE"
SILENT_S = 120.0
"""A worker ends a task, beat sends one and a runner sends a heartbeat every few seconds; a task may
take a minute."""


def touch(*_: object, **__: object) -> None:
    """Say that this process has done its work once more; nothing where no file is named.

    A file that cannot be touched ends no process: the health check says so, and whoever reads it
    decides.
    """
    if path := os.environ.get(VARIABLE):
        try:
            Path(path).touch()
        except OSError as error:
            log.warning("the health check will fail: %s", error)


def main() -> int:
    """Return the exit code: 0 for a process that works."""
    path = Path(os.environ[VARIABLE])
    if not path.exists():
        sys.stderr.write(f"{path} does not exist: the process has not worked yet\n")
        return 1
    silent_s = time.time() - path.stat().st_mtime
    if silent_s > SILENT_S:
        sys.stderr.write(f"the process has done nothing for {silent_s:.0f} s\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
