"""The last file of the folder: what was started ends when it is asked to."""

from __future__ import annotations

import psutil

from tests.e2e.compose.deployment import CONTROL, Deployment


def test_all_end_when_they_are_asked_to(deployment: Deployment) -> None:
    """By themselves or by SIGTERM, and nothing has to be killed."""
    running = [p.pid for p in deployment.processes.values() if p.poll() is None]
    family = [each for pid in running for each in psutil.Process(pid).children(recursive=True)]
    codes = deployment.stop()
    assert not [each for each in family if each.is_running() and each.status() != "zombie"]
    assert set(codes) == {"valkey", "migrate", *CONTROL, "runner"}
    assert -9 not in codes.values(), codes
