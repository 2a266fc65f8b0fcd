"""Two nodes on this machine as a gang: their own Ray on 127.0.0.2 and 127.0.0.3, one trainer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.api.clusters.renting import Rented
from tests.api.fixtures.serving import Served
from tests.worker.environment import variables_of
from tests.worker.node.bench import DATA_PLANE, ROOT, NodeBench
from tests.worker.run_simulation import RunSimulation
from trainer.node.ray_process import RayProcess
from trainer.node.settings import NodeSettings

pytestmark = pytest.mark.long
Make = Callable[..., tuple[NodeBench, Rented]]
IPS = ("127.0.0.2", "127.0.0.3")
SLOW_S = 240.0
"""Ray takes seconds to start on a machine of its own, and most of a minute on a busy one."""
JOIN = """
import os, ray
ray.init(address=os.environ["RAY_ADDRESS"], configure_logging=False, log_to_driver=False)
nodes = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])

@ray.remote(num_cpus=0)
def is_marked():
    with open("/proc/self/environ", "rb") as file:
        return b"HILLCLIMB_RUNNER_HOME=" in file.read()

print(nodes, ray.cluster_resources().get("GPU"), ray.get(is_marked.remote()))
"""
FAKE_SMI = """#!/bin/sh
echo "0, GPU-a, Fake H100, 4, 31, 0"
"""


def free_port() -> str:
    """A port, and the two after it, below those that Ray gives to its workers.

    Two suites on this machine look at different ones first.
    """
    ports = range(8300, 9900, 4)
    first = os.getpid() % len(ports)
    for port in (*ports[first:], *ports[:first]):
        try:
            for each in (port, port + 1, port + 2):
                socket.create_server((IPS[0], each)).close()
        except OSError:
            continue
        return str(port)
    raise AssertionError("no port is free")


def rays_folders(bench: NodeBench, told: dict[str, str]) -> list[Path]:
    """Where each node's Ray has its files; other suites' gangs have theirs beside them."""
    home = {"HILLCLIMB_NODE_HOME": str(bench.home), "HILLCLIMB_BLOBS_URL": str(bench.blobs)}
    ranks = ({"SKYPILOT_NODE_RANK": str(n), "SKYPILOT_NODE_IPS": "\n".join(IPS)} for n in (0, 1))
    every = (NodeSettings.from_environment({**bench.variables, **told, **home, **r}) for r in ranks)
    return [RayProcess(settings=settings, environ={})._folder for settings in every]


@pytest.fixture
def gang(served: Served, make_bench: Make) -> tuple[NodeBench, Rented, dict[str, str]]:
    bench, rented = make_bench(served.url, *IPS)
    tools = bench.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(FAKE_SMI)
    (tools / "nvidia-smi").chmod(0o755)
    told = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SKYPILOT_NUM_GPUS_PER_NODE": "1",
        "HILLCLIMB_NODE_STAND_IN_GPUS": "1",
        "HILLCLIMB_RAY_PORT": free_port(),
        "HILLCLIMB_NODE_CPUS": "1",
        "HILLCLIMB_NODE_GATHER_S": str(SLOW_S),
        # A Ray that is somebody else's, as on SkyPilot's own machines.
        "RAY_ADDRESS": "127.0.0.1:6380",
    }
    return bench, rented, told


def test_two_nodes_gather_are_tested_train_and_leave_nothing(
    gang: tuple[NodeBench, Rented, dict[str, str]], sim: RunSimulation
) -> None:
    bench, rented, told = gang
    gate = bench.hold(2)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        head, member = bench.start(0, **told), bench.start(1, **told)
        bench.until((bench.attempt_dir().pid).exists, SLOW_S)
        bench.trains(3)
        variables = variables_of(bench.trainer().pid)
        assert variables["RAY_ADDRESS"] == f"{IPS[0]}:{told['HILLCLIMB_RAY_PORT']}"
        assert variables["AWS_SECRET_ACCESS_KEY"]
        joined = subprocess.run(
            [str(DATA_PLANE), "-c", JOIN],
            env=variables | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=SLOW_S,
        )
        assert joined.stdout.strip() == f"{list(IPS)} 2.0 True"
        assert all(folder.exists() for folder in rays_folders(bench, told))
        raylets = [p.environ() for p in bench.left() if "raylet" in p.name()]
        assert len(raylets) == 2
        assert all(
            each["AWS_SECRET_ACCESS_KEY"] == variables["AWS_SECRET_ACCESS_KEY"] for each in raylets
        )
        assert all("HILLCLIMB_BOOTSTRAP_TOKEN" not in each for each in raylets)
        gate.unlink()
        assert bench.exit_code(head, SLOW_S) == 0
        assert bench.exit_code(member, SLOW_S) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert sim.attempts(rented.run_id)[0].end_code == "completed"
    said = bench.log.read_text()
    for ip in IPS:
        assert f"{ip} (" in said
    assert said.count("1 GPU (Fake H100), 31 to 31 °C") == 2
    assert bench.left() == []
    assert not any(folder.exists() for folder in rays_folders(bench, told))


def test_a_gang_that_stays_incomplete_ends_the_attempt_and_says_who_came(
    gang: tuple[NodeBench, Rented, dict[str, str]], sim: RunSimulation
) -> None:
    bench, rented, told = gang
    head = bench.start(0, **told | {"HILLCLIMB_NODE_GATHER_S": "2"})
    assert bench.exit_code(head, SLOW_S) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "node_unfit"
    assert "1 of 2 machines joined within 2 s: 127.0.0.2" in (attempt.end_message or "")
    assert bench.left() == []


def test_somebody_elses_listener_on_the_port_is_not_taken_for_the_gangs_ray(
    gang: tuple[NodeBench, Rented, dict[str, str]], sim: RunSimulation
) -> None:
    bench, rented, told = gang
    with socket.create_server((IPS[0], int(told["HILLCLIMB_RAY_PORT"]))):
        head = bench.start(0, **told)
        assert bench.exit_code(head, SLOW_S) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "node_unfit"
    assert f"another process listens at {IPS[0]}:" in (attempt.end_message or "")
    assert bench.left() == []


def test_a_ray_that_ends_while_the_gang_gathers_ends_the_attempt(
    gang: tuple[NodeBench, Rented, dict[str, str]], sim: RunSimulation
) -> None:
    bench, rented, told = gang
    head = bench.start(0, **told)
    bench.until(lambda: bool(rays(bench)), SLOW_S)
    # The port alone is not enough: killed before the node saw it, Ray "did not start".
    bench.until(lambda: "waiting for 2 machines" in bench.log.read_text(), SLOW_S)
    for process in rays(bench):
        process.kill()
    assert bench.exit_code(head, SLOW_S) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "node_unfit"
    assert "Ray ended on the first machine" in (attempt.end_message or "")
    # Its own processes notice by themselves that `ray start` was killed.
    bench.until(lambda: bench.left() == [], SLOW_S)


def rays(bench: NodeBench) -> list[psutil.Process]:
    """The processes `ray start` of the gang."""
    with suppress(psutil.Error):  # one that ends while it is looked at
        return [each for each in bench.left() if "ray.scripts.scripts" in each.cmdline()]
    return []


def test_a_stop_while_the_gang_gathers_is_heard_by_both(
    gang: tuple[NodeBench, Rented, dict[str, str]], sim: RunSimulation
) -> None:
    bench, rented, told = gang
    head, member = bench.start(0, **told), bench.start(1, **told)
    bench.until(lambda: sim.attempts(rented.run_id)[0].state == "claimed")
    for each in (head, member):
        each.send_signal(signal.SIGTERM)
    assert bench.exit_code(head, SLOW_S) == 0
    bench.exit_code(member, SLOW_S)
    assert sim.attempts(rented.run_id)[0].end_code == "runner_stopped"
    assert bench.left() == []
