"""OpenEnv's own `FleetTaskEnv`, where `OPENENV_DIR` names a checkout of fleet-ai/OpenEnv.

It is on no package index. What it imports beside `.venv-peers` (logfire) is looked for in the
folder that `OPENENV_PACKAGES` names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.peers.conftest import ROOT, TRAINER_PYTHON, Peers

CHECKOUT = os.environ.get("OPENENV_DIR", "")


@pytest.mark.skipif(not CHECKOUT, reason="OPENENV_DIR names no checkout of fleet-ai/OpenEnv")
def test_openenvs_adapter_is_graded_as_in_process(peers: Peers, tmp_path: Path) -> None:
    recorded, chosen = tmp_path / "recorded.json", tmp_path / "chosen.json"
    subprocess.run(
        [str(TRAINER_PYTHON), "-m", "tests.trainer.envs.episodes", str(recorded)],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    by_agent: dict[str, dict[str, Any]] = {}
    for episode in json.loads(recorded.read_text()):
        if episode["calls"]:
            by_agent.setdefault(episode["agent"], episode)
    chosen.write_text(json.dumps(list(by_agent.values())))
    path = os.pathsep.join((f"{CHECKOUT}/src", os.environ.get("OPENENV_PACKAGES", "")))
    printed = peers.run("fleet_task_env.py", str(chosen), PYTHONPATH=path)
    played = json.loads(printed.splitlines()[-1])
    assert [each["reward"] for each in played] == [each["reward"] for each in by_agent.values()]
    assert {each["reward"] for each in played} == {0.0, 1.0}
    assert all(each["tools"] for each in played)
