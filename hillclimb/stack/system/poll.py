"""Wait for a condition with a deadline."""

import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.05


def wait_until(condition: Callable[[], bool], *, deadline_s: float) -> bool:
    """Poll `condition` every 50 ms; True as soon as it holds, False after `deadline_s` seconds."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True
