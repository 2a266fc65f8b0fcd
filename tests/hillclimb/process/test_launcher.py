"""Which of its machine's secrets a trainer gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from hillclimb.process.host import TrainerHost
from hillclimb.process.launcher import RAY_VARIABLES, Launcher
from hillclimb.process.network.addresses import PRIVATE_HOSTS
from hillclimb.protocol.launch import LaunchPlan
from hillclimb.spec.rules.addresses import Hosts
from tests.fixtures.factories import make_spec
from worker.runner.errors import RunnerMisconfigured
from worker.runner.settings import RunnerSettings

MACHINE = {"PATH": "/bin", "RUN_SECRET_SHOP": "of-a-shop", "RUN_SECRET_BANK": "of-a-bank"}


def variables(
    url: str, hosts: Hosts | None, root: Path, machine: Mapping[str, str] = MACHINE
) -> dict[str, str]:
    server = {"url": url, "headers": {"X-Key": "RUN_SECRET_SHOP"}}
    spec = make_spec(
        environment={"provider": "openenv", "openenv": {"booking": server}}, experimental=True
    )
    plan = LaunchPlan(
        run_id="run_1",
        attempt=1,
        attempt_id="att_1",
        attempt_token="token",
        ingest_url="",
        spec=spec,
    )
    host = TrainerHost(trainer_python="python", runs_dir=root, blobs_url=str(root), own_dir=root)
    return Launcher(host, machine, secret_hosts=hosts)._trainer_environment(plan)


@pytest.mark.parametrize(
    ("url", "hosts", "is_passed"),
    [
        ("https://evil.example", {"RUN_SECRET_SHOP": ("shop.example",)}, False),
        ("https://shop.example.evil.example", {"RUN_SECRET_SHOP": ("shop.example",)}, False),
        ("https://evilshop.example", {"RUN_SECRET_SHOP": ("*.shop.example",)}, False),
        ("https://shop.example", {}, False),
        ("https://shop.example", {"RUN_SECRET_BANK": ("shop.example",)}, False),
        ("https://shop.example", {"RUN_SECRET_SHOP": ("shop.example",)}, True),
        ("https://EU.shop.example", {"RUN_SECRET_SHOP": ("*.shop.example",)}, True),
        ("http://127.0.0.1:8765", {}, True),
        ("https://shop.example", None, True),
    ],
)
def test_a_trainer_gets_a_machines_secret_if_it_goes_to_its_hosts_alone(
    tmp_path: Path, url: str, hosts: Hosts | None, *, is_passed: bool
) -> None:
    passed = variables(url, hosts, tmp_path)
    assert ("RUN_SECRET_SHOP" in passed) == is_passed
    assert ("RUN_SECRET_BANK" in passed) == (hosts is None)
    assert passed["PATH"] == "/bin"


@pytest.mark.parametrize("entry", ["RUN_SECRET_SHOP", "RUN_SECRET_SHOP=", "=a.example", "X=a b/c"])
def test_a_runner_names_an_entry_that_it_cannot_read(tmp_path: Path, entry: str) -> None:
    environment = {
        "HILLCLIMB_STATE_DIR": str(tmp_path),
        "HILLCLIMB_API_URL": "http://api",
        "HILLCLIMB_RUNNER_TOKEN": "token",
        "HILLCLIMB_TRAINER_PYTHON": "python",
    }
    assert RunnerSettings.from_environment(environment).secret_hosts == {}
    with pytest.raises(RunnerMisconfigured, match="HILLCLIMB_RUN_SECRET_HOSTS"):
        RunnerSettings.from_environment(environment | {"HILLCLIMB_RUN_SECRET_HOSTS": entry})


def test_the_digests_of_checkpoints_lie_beside_the_spec(tmp_path: Path) -> None:
    """A service that does not tell leaves none, not even those of an earlier plan."""
    host = TrainerHost(
        trainer_python="python", runs_dir=tmp_path, blobs_url=str(tmp_path), own_dir=tmp_path
    )
    plan = LaunchPlan(
        run_id="run_1",
        attempt=1,
        attempt_id="att_1",
        attempt_token="token",
        ingest_url="",
        spec=make_spec(),
        manifests={"runs/run_1/checkpoints/global_step_1/attempt-1": "a" * 64},
    )
    attempt_dir = Launcher(host, MACHINE).prepare(plan)
    assert json.loads(attempt_dir.manifests.read_text()) == plan.manifests
    Launcher(host, MACHINE).prepare(plan.model_copy(update={"manifests": None}))
    assert not attempt_dir.manifests.exists()


def test_a_trainer_learns_what_it_may_reach_also_where_the_operator_opens_nothing(
    tmp_path: Path,
) -> None:
    """Without the variable it would take itself for one that was started by hand."""
    url = "https://shop.example"
    assert variables(url, {}, tmp_path)[PRIVATE_HOSTS] == ""
    machine = MACHINE | {PRIVATE_HOSTS: "loopback"}
    assert variables(url, {}, tmp_path, machine)[PRIVATE_HOSTS] == "loopback"


def test_a_runner_whose_opened_hosts_cannot_be_read_does_not_start() -> None:
    with pytest.raises(RunnerMisconfigured, match=rf"{PRIVATE_HOSTS} lists .*10\.0\.0/8"):
        RunnerSettings.from_environment({PRIVATE_HOSTS: "10.0.0/8"})


def test_each_trainers_own_ray_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Without one Ray takes the key of the account, which lies in a readable file of its home."""
    url = "https://shop.example"
    one, other = (variables(url, {}, tmp_path) for _ in range(2))
    assert one["RAY_AUTH_MODE"] == "token"
    assert len(one["RAY_AUTH_TOKEN"]) == 64
    assert one["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize(
    "own",
    [
        {"RAY_ADDRESS": "10.0.0.1:6379"},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-the-gang"},
        {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"},
    ],
)
def test_a_trainer_that_joins_a_ray_has_that_ones_key(tmp_path: Path, own: dict[str, str]) -> None:
    passed = variables("https://shop.example", {}, tmp_path, MACHINE | own)
    assert {name: passed.get(name) for name in RAY_VARIABLES} == {
        name: own.get(name) for name in RAY_VARIABLES
    }
