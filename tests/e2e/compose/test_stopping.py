"""The last file of the folder: what was started ends when it is asked to."""

from __future__ import annotations

from tests.e2e.compose.deployment import CONTROL, Deployment


def test_all_end_when_they_are_asked_to(deployment: Deployment) -> None:
    """By themselves or by SIGTERM, and nothing has to be killed."""
    codes = deployment.stop()
    assert set(codes) == {"valkey", "migrate", *CONTROL, "runner"}
    assert -9 not in codes.values(), codes
