"""The same episodes in the trainer's process and through Fleet's own clients."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.peers.conftest import ROOT, RUNNER_TOKEN, TRAINER_PYTHON, Peers


@pytest.mark.invariant("200 episodes get the same grades through Fleet's own client")
def test_200_episodes_are_worth_the_same_through_the_official_clients(
    peers: Peers, tmp_path: Path
) -> None:
    recorded, played = tmp_path / "recorded.json", tmp_path / "played.json"
    subprocess.run(
        [str(TRAINER_PYTHON), "-m", "tests.trainer.envs.episodes", str(recorded)],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    peers.run("replay.py", str(recorded), str(played), RUNNER_AUTH_TOKEN=RUNNER_TOKEN)
    here, there = json.loads(recorded.read_text()), json.loads(played.read_text())
    rewards = Counter(episode["reward"] for episode in here)
    assert len(here) == 200
    assert min(rewards[0.0], rewards[1.0]) >= 40, "agents that all do the same prove nothing"
    assert there == here
