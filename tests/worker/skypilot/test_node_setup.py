"""What nodes do before the job, run by a shell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.spec.backend.skypilot import TrainerInstall
from hillclimb.stack.servers.sky import LINKED
from worker.skypilot.node_setup import CREDENTIALS, HOME, setup_script
from worker.skypilot.wheel import find_locks

BUSY = """#!/bin/sh
mkdir "$HOME/busy" || exit 9
echo "$@" >>"$HOME/done"
sleep 0.3
rmdir "$HOME/busy"
"""


STAND_IN = """#!/bin/sh
echo "$0 $@" >>"$HOME/done"
"""


ASKS = "-m pip --version"
MADE = 'mkdir -p "$LAST/bin"; ln -s "$HOME/python" "$LAST/bin/python"\n'


def stand_in(place: Path, text: str = STAND_IN) -> Path:
    """A program that says how it was called."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


def without_python(folder: Path) -> Path:
    """What a shell needs for the set-up, and no Python."""
    for each in ("bash", "mkdir", "chmod", "rm", "flock", "ln"):
        stand_in(folder / each, f'#!/bin/sh\nexec {shutil.which(each)} "$@"\n')
    return folder


def set_up(home: Path, path: str = "/usr/bin:/bin", **told: str) -> list[str]:
    """Set one node up from a wheel; returns what was called, without the home's name.

    Not whether its environment is whole, which is asked often.
    """
    script = setup_script(TrainerInstall(type="wheel"), "hillclimb.whl")
    environment = {"HOME": str(home), "PATH": path} | told
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    called = (home / "done").read_text().replace(f"{home}/", "").splitlines()
    return [line for line in called if not line.endswith(ASKS)]


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
    called = (tmp_path / "done").read_text().splitlines()
    lines = [line for line in called if not line.endswith(ASKS)]
    assert len(lines) == (6 if kind == "wheel" else 2)
    assert all("pip install" in line for line in lines)


@pytest.mark.parametrize(
    ("gpus", "installed"),
    [
        (
            "0",
            (
                "--require-hashes --no-deps -r hillclimb/trainer.txt",
                "--disable-pip-version-check --no-warn-conflicts -r hillclimb/torch.txt",
            ),
        ),
        ("8", ("--require-hashes --no-deps -r hillclimb/trainer-gpu.txt",)),
    ],
)
def test_a_node_gets_its_packages_by_hash_but_for_torch_without_a_gpu(
    tmp_path: Path, gpus: str, installed: tuple[str, ...]
) -> None:
    stand_in(tmp_path / "hillclimb/venv/bin/python")
    *locked, own = set_up(tmp_path, SKYPILOT_SETUP_NUM_GPUS_PER_NODE=gpus)
    assert len(locked) == len(installed)
    assert all(line.endswith(f" {end}") for line, end in zip(locked, installed, strict=True))
    assert own.endswith(" --no-deps --force-reinstall hillclimb/hillclimb.whl")


def test_every_lock_that_a_set_up_reads_is_brought_by_the_launch() -> None:
    script = setup_script(TrainerInstall(type="wheel"), "hillclimb.whl")
    assert set(re.findall(rf" -r {HOME}/(\S+)", script)) == {path.name for path in find_locks()}


def test_a_node_whose_python_is_too_old_gets_one_by_uv(tmp_path: Path) -> None:
    """As in the clouds' own images, Ubuntu 22.04: `python3` is 3.10, and there is no other."""
    bare = without_python(tmp_path / "bin")
    old = stand_in(bare / "python3", f"{STAND_IN}exit 1\n")
    uv = stand_in(tmp_path / ".local/bin/uv", STAND_IN + MADE.replace("$LAST", "$6"))
    stand_in(tmp_path / "python")
    asked, making, *installs = set_up(tmp_path, path=str(bare))
    assert asked.startswith(str(old).replace(f"{tmp_path}/", "") + " -c import ensurepip")
    assert making == f"{uv.relative_to(tmp_path)} venv --quiet --seed --python 3.11 hillclimb/venv"
    assert len(installs) == 3


def test_a_node_with_a_fitting_python_makes_its_environment_with_it(tmp_path: Path) -> None:
    stand_in(tmp_path / "python")
    real = f"""#!/bin/sh
case "$1" in -c) exec {sys.executable} "$@" ;; esac
{STAND_IN}{MADE.replace("$LAST", "$3")}"""
    bare = without_python(tmp_path / "bin")
    stand_in(bare / "python3", real)
    making, *installs = set_up(tmp_path, path=str(bare))
    assert making == "bin/python3 -m venv hillclimb/venv"
    assert len(installs) == 3


def test_an_environment_that_was_cut_off_while_it_was_made_is_made_anew(tmp_path: Path) -> None:
    stand_in(tmp_path / "python")
    half = stand_in(tmp_path / "hillclimb/venv/bin/python", f"{STAND_IN}exit 1\n")
    left = stand_in(half.parents[1] / "left")
    bare = without_python(tmp_path / "bin")
    stand_in(tmp_path / ".local/bin/uv", STAND_IN + MADE.replace("$LAST", "$6"))
    making, *installs = set_up(tmp_path, path=str(bare))
    assert making.startswith(".local/bin/uv venv ")
    assert not left.exists()
    assert len(installs) == 3


def test_a_setup_whose_install_fails_fails(tmp_path: Path) -> None:
    (tmp_path / "hillclimb").mkdir()
    install = TrainerInstall(type="prebuilt", python="/bin/false")
    assert all(each.wait() for each in prepared(tmp_path, install))


def test_what_the_launch_brought_is_closed_to_other_accounts(tmp_path: Path) -> None:
    file = tmp_path / "hillclimb/secrets/att_1.json"
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
