"""Our verifier request is the one that Fleet's own client sends, field by field."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.peers.conftest import PEERS_PYTHON, ROOT


@pytest.mark.invariant("a verifier request is that of Fleet's own client")
def test_the_request_to_grade_is_the_official_clients() -> None:
    assert PEERS_PYTHON.exists(), "run `make .venv-peers/.ready`"
    done = subprocess.run(
        [str(PEERS_PYTHON), str(ROOT / "tests/peers/verifier_request.py")],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    bodies = json.loads(done.stdout)
    assert bodies["ours"] == bodies["official"]
    assert bodies["official"]["sha256"] == "of the bundle"
