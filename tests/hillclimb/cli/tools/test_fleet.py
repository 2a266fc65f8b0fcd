"""`hillclimb fleet` with the real data plane behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from click.testing import CliRunner, Result

from hillclimb.cli.commands import main

ROOT = Path(__file__).resolve().parents[4]


def invoke(*words: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(main, ["fleet", *words])


def test_tasks_are_exported_in_fleets_form(tmp_path: Path) -> None:
    target = tmp_path / "tasks.json"
    words = ["--env", "booking", "--env", "reddit", "--split", "train", "-n", "3"]
    done = invoke("tasks", *words, "--out", str(target), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"tasks": 6, "file": str(target)}
    rows = json.loads(target.read_text())["tasks"]
    assert [row["env_key"] for row in rows] == ["booking"] * 3 + ["reddit"] * 3
    assert rows[0].keys() == {
        "key",
        "prompt",
        "env_key",
        "env_version",
        "data_key",
        "data_version",
        "env_variables",
        "verifier_code",
        "task_modality",
        "difficulty",
        "metadata",
    }
    assert rows[0]["metadata"].keys() == {"template", "held_out_template"}
    assert "def verify(env" in rows[0]["verifier_code"]


def test_an_unknown_environment_is_refused_with_those_there_are() -> None:
    done = invoke("tasks", "--env", "amazon", "--split", "train", "-n", "3")
    assert done.exit_code == 2
    assert "there are booking, github" in done.stderr


def test_serve_says_where_it_listens_and_ends_with_the_command(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('{"seed": 3, "rules": [{"on": ["account"], "error_rate": 1.0}]}')
    command = [sys.executable, "-m", "hillclimb.cli", "fleet", "serve", "--json"]
    options = ["--api-key", "a-key", "--faults", str(faults), "--latency", "0.01"]
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["base_url"]
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer a-key"}) as http:
            assert http.get("/v1/env/").status_code == 200
            assert http.get("/v1/account").status_code == 502
            rules = http.get("/admin/faults").json()["rules"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(10.0) in (0, -signal.SIGTERM)
    assert [rule["latency_s"] for rule in rules] == [0.0, 0.01]


def test_a_bad_fault_file_gets_a_sentence(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('{"rules": [{"on": ["verify"], "error_rate": 7}]}')
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.cli", "fleet", "serve", "--faults", str(faults)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: faults: rules.0.error_rate: ")
