"""What nodes do before the job, run by a shell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from api.clusters.secrets import BadNodeSecrets
from hillclimb.stack.sky import LINKED
from trainer.contract.clusters.spec import TrainerInstall
from worker.clusters.plans import CREDENTIALS, _told_in_private, setup_script

BUSY = """#!/bin/sh
mkdir "$HOME/busy" || exit 9
echo "$@" >>"$HOME/done"
sleep 0.3
rmdir "$HOME/busy"
"""


def prepared(home: Path, install: TrainerInstall) -> list[subprocess.Popen[bytes]]:
    """Two nodes of one home that set themselves up at once."""
    script = setup_script(install, "hillclimb.whl")
    command, environment = ["bash", "-c", script], {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return [subprocess.Popen(command, env=environment) for _ in range(2)]


@pytest.mark.parametrize("kind", ["wheel", "prebuilt"])
def test_nodes_that_share_a_home_do_not_install_at_once(tmp_path: Path, kind: str) -> None:
    python = tmp_path / "hillclimb/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(BUSY)
    python.chmod(0o755)
    given = str(python) if kind == "prebuilt" else None
    install = TrainerInstall.model_validate({"type": kind, "python": given})
    assert [each.wait() for each in prepared(tmp_path, install)] == [0, 0]
    lines = (tmp_path / "done").read_text().splitlines()
    assert len(lines) == (6 if kind == "wheel" else 2)
    assert all("pip install" in line for line in lines)


def test_a_setup_whose_install_fails_fails(tmp_path: Path) -> None:
    (tmp_path / "hillclimb").mkdir()
    install = TrainerInstall(type="prebuilt", python="/bin/false")
    assert all(each.wait() for each in prepared(tmp_path, install))


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("https://hillclimb.example.com", True),
        ("http://127.0.0.1:8000", True),
        ("http://10.1.2.3:8000", True),
        ("http://[fd00::1]:8000", True),
        ("http://hillclimb.example.com", False),
        ("http://8.8.8.8", False),
    ],
)
def test_secrets_travel_to_nodes_in_private_only(url: str, is_taken: bool) -> None:
    if is_taken:
        assert _told_in_private(url) == url
    else:
        with pytest.raises(BadNodeSecrets, match=r"in the clear: give HILLCLIMB_NODE_API_URL"):
            _told_in_private(url)


def test_what_the_launch_brought_is_closed_to_other_accounts(tmp_path: Path) -> None:
    file = tmp_path / "hillclimb/given/att_1.json"
    file.parent.mkdir(parents=True, mode=0o755)
    file.touch(mode=0o644)
    script = setup_script(TrainerInstall(type="prebuilt", python="/bin/true"), "hillclimb.whl")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    assert [each.stat().st_mode & 0o077 for each in (file, file.parent)] == [0, 0]


def test_a_machine_keeps_the_credentials_of_its_own_cloud_alone(tmp_path: Path) -> None:
    kept, foreign = tmp_path / ".aws/credentials", tmp_path / ".lambda_cloud/lambda_keys"
    for each in (kept, foreign, tmp_path / "hillclimb/trainer.txt"):
        each.parent.mkdir(parents=True)
        each.touch()
    install = TrainerInstall(type="prebuilt", python="/bin/true")
    told = {"SKYPILOT_CLUSTER_INFO": json.dumps({"cluster_name": "hc", "cloud": "AWS"})}
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"} | told
    script = setup_script(install, "hillclimb.whl")
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    assert kept.exists()
    assert not foreign.exists()


def test_whatever_is_linked_into_the_servers_home_is_taken_away_again() -> None:
    linked = {f"~/{each}" for each in LINKED if not each.startswith((".sky/", ".slurm"))}
    assert set(CREDENTIALS.values()) == linked
