"""Fleet's own client, unchanged, against minifleet's server: see `official.py` for the checks."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.peers.conftest import ROOT, TRAINER_PYTHON, Peers

CHECKS = [
    node.name
    for node in ast.parse((ROOT / "tests/peers/official.py").read_text()).body
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("check_")
]


@pytest.fixture(scope="module")
def outcomes(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    recorded = tmp_path_factory.mktemp("episodes") / "recorded.json"
    subprocess.run(
        [str(TRAINER_PYTHON), "-m", "tests.trainer.envs.episodes", str(recorded)],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    # Fleet's client prints what verifiers print; the outcomes are the last line.
    found: dict[str, str] = json.loads(peers.run("official.py", str(recorded)).splitlines()[-1])
    return found


@pytest.mark.invariant("Fleet's own client reads our catalogue, instances and grades")
@pytest.mark.parametrize("check", CHECKS)
def test_the_official_client(outcomes: dict[str, str], check: str) -> None:
    assert outcomes[check] == "ok"


def test_the_client_is_the_published_one(peers: Peers) -> None:
    text = Path(ROOT / "requirements/peers.txt").read_text()
    lock = {line.partition(" ")[0] for line in text.splitlines()}  # hashes follow the pin
    assert {"fleet-python==0.2.133", "mcp==1.24.0"} <= lock
    done = subprocess.run(
        [str(ROOT / ".venv-peers/bin/python"), "-m", "pip", "list", "--format", "freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"fleet-python==0.2.133", "mcp==1.24.0"} <= set(done.stdout.splitlines())
