"""Stops the remaining processes of a stack after its services, such as orphaned trainers."""

import signal
from collections.abc import Iterator
from pathlib import Path

from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by, signal_group

SWEEP_TERM_S = 20.0
SWEEP_KILL_S = 5.0


def sweep(state: Path) -> Iterator[str]:
    """Send SIGTERM to all processes with our mark, SIGKILL after 20 s; return a line for each."""
    processes = list(owned_by(state))
    for identity, command in processes:
        signal_group(identity, signal.SIGTERM)
        yield f"left over: stopping pid {identity.pid} ({' '.join(command)[:80]})"
    if wait_until(lambda: not any(i.alive() for i, _ in processes), deadline_s=SWEEP_TERM_S):
        return
    for identity, _ in owned_by(state):
        signal_group(identity, signal.SIGKILL)
        yield f"left over: killed pid {identity.pid}, it ignored SIGTERM"
    wait_until(lambda: not any(owned_by(state)), deadline_s=SWEEP_KILL_S)
