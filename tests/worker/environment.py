"""What a process was told by its environment, read from outside."""

from __future__ import annotations

import psutil

from hillclimb.stack.system.poll import wait_until


def variables_of(pid: int, deadline_s: float = 20.0) -> dict[str, str]:
    """Return a live process's environment.

    While the kernel exchanges one program for the next (`exec`: the tests' trainers start through a
    shell), it shows an empty one under the same pid.
    """
    process = psutil.Process(pid)
    assert wait_until(lambda: process.environ() != {}, deadline_s=deadline_s)
    return process.environ()
