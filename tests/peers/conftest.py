"""A minifleet Fleet server in the data plane, and the environment of Fleet's own client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINER_PYTHON = ROOT / ".venv-trainer/bin/python"
PEERS_PYTHON = ROOT / ".venv-peers/bin/python"
API_KEY, RUNNER_TOKEN = "key-of-peers", "token-of-peers"
INSTANCE_LIMIT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Runs scripts with Fleet's client, which is told one thing: `FLEET_BASE_URL`."""

    base_url: str

    def run(self, script: str, *arguments: str, **variables: str) -> str:
        """Run a script of this folder and return its output."""
        done = subprocess.run(
            [str(PEERS_PYTHON), str(ROOT / "tests/peers" / script), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "FLEET_BASE_URL": self.base_url,
                "FLEET_API_KEY": API_KEY,
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="package")
def peers() -> Iterator[Peers]:
    """A server whose managers want the runner token, as a gated cluster's do."""
    assert PEERS_PYTHON.exists(), "run `make .venv-peers/.ready`"
    command = [str(TRAINER_PYTHON), "-m", "hillclimb.minifleet.server", "serve", "--json"]
    options = ["--api-key", API_KEY, "--runner-token", RUNNER_TOKEN]
    limits = ["--instance-limit", str(INSTANCE_LIMIT), "--tasks-per-env", "3"]
    server = subprocess.Popen(
        [*command, *options, *limits], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield Peers(base_url=json.loads(server.stdout.readline())["base_url"])
    finally:
        server.terminate()
        server.wait(10.0)
        server.stdout.close()
