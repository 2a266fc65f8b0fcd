"""The fleet provider's MCP session works with mcp 1.24 as it does with the trainer's mcp 2."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.peers.conftest import API_KEY, PEERS_PYTHON, ROOT, TRAINER_PYTHON, Peers


def told(peers: Peers, python: Any) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), str(ROOT / "tests/peers/our_session.py")],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "FLEET_BASE_URL": peers.base_url,
            "FLEET_API_KEY": API_KEY,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def both(peers: Peers) -> tuple[dict[str, Any], dict[str, Any]]:
    return told(peers, PEERS_PYTHON), told(peers, TRAINER_PYTHON)


def test_both_versions_say_the_same(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = both
    assert first.pop("mcp").startswith("1.24")
    assert second.pop("mcp").startswith("2.")
    assert first == second


def test_a_session_costs_three_requests_and_a_call_one(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    found, _ = both
    assert found["num_requests"] == 3 + 2
    assert found["tools"] >= 5
    assert "inputSchema" in found["schema"]
    assert found["bad"]["isError"]
    assert found["same"]
    assert found["refused"] == ["unavailable", 503, True, False]
    assert found["lost"] == ["session_lost", None, True, False]
