"""`hillclimb tinker` with the real data plane behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from hillclimb.cli.commands import main

ROOT = Path(__file__).resolve().parents[4]


# 6 s for torch: `fleet serve` becomes its server by the same function (`test_fleet.py`), and the
# test below starts this one's.
@pytest.mark.long
@pytest.mark.invariant("`hillclimb tinker serve` leaves no server behind")
def test_serve_says_where_it_listens_and_ends_with_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hillclimb.cli", "tinker", "serve", "--json"]
    options = ["--state-dir", str(tmp_path), "--api-key", "tml-a", "--max-rank", "16"]
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        with httpx.Client(base_url=told["base_url"], headers={"X-API-Key": "tml-a"}) as http:
            offered = http.get("/api/v1/get_server_capabilities").json()["supported_models"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(20.0) in (0, -signal.SIGTERM)
    assert told["model"] == "builtin:tiny-qwen3-a"
    assert [(each["model_name"], each["max_lora_rank"]) for each in offered] == [
        ("builtin:tiny-qwen3-a", 16)
    ]


def test_what_cannot_be_served_gets_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hillclimb.cli", "tinker", "serve"]
    options = ["--state-dir", str(tmp_path), "--model", "builtin:none"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no builtin model 'none'")


def test_a_key_that_the_sdk_would_not_send_is_wrong_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hillclimb.cli", "tinker", "serve", "--api-key", "other"]
    done = subprocess.run(
        [*command, "--state-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "each key must begin with tml-" in done.stderr


def test_the_group_is_on_the_command_line() -> None:
    assert "serve" in CliRunner().invoke(main, ["tinker", "--help"]).output
